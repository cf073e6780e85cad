
use tradewind_common::spec::ConsistencySpec::{self, Async, Bounded, Sync};
use tradewind_tests::sim::{Scenario, World};
use std::collections::BTreeMap;
#[test]
fn survey() {
    let n: u64 = std::env::var("N").ok().and_then(|s| s.parse().ok()).unwrap_or(300);
    for c in [Bounded{staleness_bound:0}, Bounded{staleness_bound:1}, Bounded{staleness_bound:3}, Async, Sync] {
        let mut h: BTreeMap<String,(u64,Vec<u64>, String)> = BTreeMap::new();
        let mut ok=0; let mut ev=0; let mut rep=0; let mut rst=0; let mut lag=0; let mut mal=0; let mut dec=0;
        for seed in 0..n {
            let s = Scenario::random(seed, c);
            let s = if seed%2==0 {s} else {s.with_crashes()};
            match World::new(s).run() { Ok(r)=>{ok+=1; ev+=r.events; rep+=r.repeated; rst+=r.restarts; lag=lag.max(r.lag_max); mal+=r.malformed; dec+=r.decided;}, Err(f)=>{
                let t=f.to_string(); let k: String = f.violation.to_string().chars().filter(|c| !c.is_ascii_digit()).take(70).collect();
                let e=h.entry(k).or_default(); e.0+=1; if e.1.len()<12 {e.1.push(seed);} if e.2.is_empty(){e.2=t;} } }
        }
        println!("== {c:?}: ok {ok} events {ev} repeated {rep} restarts {rst} lag {lag} malformed {mal} decided {dec}");
        for (k,v) in h { println!("   {} x{} {:?}\n      {}", k, v.0, v.1, v.2); }
    }
}
