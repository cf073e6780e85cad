use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path as FolderPath;
use std::time::Duration;

use serde_json::Value;
use tradewind_folder::runtime::one_thread;

use super::*;
use crate::connections::serve;
use crate::fixture::{rows, with_faults};
use crate::serve::site;
use crate::targets;

/// How long a test waits for what must come.
const COMES: Duration = Duration::from_secs(60);

/// A page that is served for as long as this is there.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    end: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Served {
    pub(crate) fn new(folders: &[&FolderPath], token: &str) -> Self {
        let folders: Vec<PathBuf> = folders.iter().map(|folder| folder.to_path_buf()).collect();
        let token = token.to_owned();
        let (end, ends) = tokio::sync::oneshot::channel();
        let (told, address) = std::sync::mpsc::channel();
        let serve = async move {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            told.send(listener.local_addr().unwrap()).unwrap();
            let site = site(targets::find(&folders).unwrap(), token).unwrap();
            tokio::select! {
                () = serve(listener, None, router(site)) => {}
                _ = ends => {}
            }
        };
        let thread = std::thread::spawn(|| one_thread().unwrap().block_on(serve));
        Self {
            address: address.recv().unwrap(),
            end: Some(end),
            thread: Some(thread),
        }
    }

    /// Status, head and body of what is asked for.
    fn get(&self, path: &str) -> (u16, String, String) {
        let mut stream = self.asking(path);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_lowercase(), body.to_owned())
    }

    fn asking(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(COMES)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    /// What the first message tells that tells of so many runs.
    fn news(&self, runs: usize) -> Value {
        let lines = BufReader::new(self.asking("/news?token=secret")).lines();
        let lines = lines.map(|line| line.unwrap());
        let mut messages = lines.filter_map(|line| Some(line.strip_prefix("data: ")?.to_owned()));
        loop {
            let news: Value = serde_json::from_str(&messages.next().unwrap()).unwrap();
            if news["runs"].as_array().unwrap().len() == runs {
                return news;
            }
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.end.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn the_page_has_all_its_parts_and_fetches_nothing_from_elsewhere() {
    let page = page("0abc");
    assert!(page.contains("nonce=\"0abc\"") && !page.contains("NONCE"));
    for part in ["UPLOT.CSS", "WATCH.CSS", "UPLOT.JS", "WATCH.JS"] {
        assert!(!page.contains(&format!("/* {part} */")), "{part}");
    }
    for word in [
        "src=\"http",
        "href=\"http",
        "url(http",
        "@import",
        "innerHTML =",
    ] {
        let own = include_str!("../page/index.html").to_owned()
            + include_str!("../page/watch.js")
            + include_str!("../page/watch.css");
        assert!(!own.contains(word), "{word}");
    }
}

#[test]
fn nothing_is_shown_without_the_token() {
    let root = tempfile::tempdir().unwrap();
    with_faults(root.path());
    let served = Served::new(&[root.path()], "secret");
    let paths = ["/", "/news", "/runs/0/texts/server-1.log", "/elsewhere"];
    for path in paths {
        for with in [
            "",
            "?token=",
            "?token=secreT",
            "?token=secret2",
            "?tokens=secret",
        ] {
            let (status, head, body) = served.get(&format!("{path}{with}"));
            assert_eq!(status, 403, "{path}{with}");
            assert!(body.contains("the token of `tradewind watch`"), "{body}");
            assert!(head.contains("cache-control: no-store"), "{head}");
        }
    }
    let (status, head, body) = served.get("/?token=secret");
    assert_eq!(status, 200);
    assert!(body.contains("<title>tradewind watch</title>") && !body.contains("secret"));
    for kept in [
        "default-src 'none'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "referrer-policy: no-referrer",
    ] {
        assert!(head.contains(kept), "{head}");
    }
    // It is read-only.
    let mut stream = TcpStream::connect(served.address).unwrap();
    let post =
        "POST /?token=secret HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    stream.write_all(post.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
}

#[test]
fn texts_of_the_run_can_be_read_and_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    let run = root.path().join("r");
    with_faults(&run);
    std::fs::write(run.join("token"), "the run's own secret").unwrap();
    std::fs::write(root.path().join("outside.log"), "outside").unwrap();
    let served = Served::new(&[&run], "secret");
    let get = |path: &str| served.get(&format!("{path}token=secret"));
    for name in [
        "token",
        "..%2Ftoken",
        "%2E%2E%2Ftoken",
        "..%2F..%2Foutside.log",
        "..%5Ctoken",
        "%2Fetc%2Fpasswd",
        "logs%2Fserver-1.log",
        "server-1.log%00",
        "summary.json",
    ] {
        let (status, _, body) = get(&format!("/runs/0/texts/{name}?"));
        assert_eq!(status, 404, "{name}: {body}");
        assert!(body.contains("the run has no log"), "{name}: {body}");
    }
    for path in [
        "/runs/0/texts/../../token?",
        "/runs/1/texts/server-1.log?",
        "/runs/0/texts/?",
        "/runs/0?",
        "/../token?",
    ] {
        assert_eq!(get(path).0, 404, "{path}");
    }
    let read = |path: &str| -> Value {
        let (status, head, body) = get(path);
        assert!(
            status == 200 && head.contains("application/json"),
            "{path}: {body}"
        );
        serde_json::from_str(&body).unwrap()
    };
    let page = read("/runs/0/texts/server-1.log?");
    assert_eq!(
        page["lines"],
        serde_json::json!(["listening", "killed, <b>not shown as markup</b>"])
    );
    assert_eq!(page["from"], 0);
    let found = read("/runs/0/texts/group-2-rank-1.log?search=STEP+29&");
    assert_eq!(found["count"], 111);
    assert_eq!(found["lines"][0], serde_json::json!([30, "step 29"]));
    let long = format!(
        "/runs/0/texts/server-1.log?search={}&",
        "x".repeat(WORDS_MAX + 1)
    );
    assert_eq!(get(&long).0, 400);
}

#[test]
fn what_is_told_is_what_is_in_the_run() {
    let root = tempfile::tempdir().unwrap();
    let (one, two) = (root.path().join("one"), root.path().join("two"));
    with_faults(&one);
    crate::fixture::folder(&two);
    let _launcher = tradewind_folder::lock::take(&two).unwrap().unwrap();
    let served = Served::new(&[&one, &two], "secret");
    let news = served.news(2);
    let (first, second) = (&news["runs"][0], &news["runs"][1]);
    assert_eq!(
        (&first["run"], &second["run"]),
        (&Value::from(0), &Value::from(1))
    );
    let look = &first["look"];
    assert_eq!(
        (&look["state"], &look["rows"]),
        (&Value::from("completed"), &Value::from(300))
    );
    // Every row of metrics.jsonl is a point of its group.
    let mut seen = 0;
    for curve in first["curves"].as_array().unwrap() {
        let own = rows().into_iter().filter(|row| curve["group"] == row.group);
        for (at, row) in own.enumerate() {
            let points = &curve["points"];
            let near =
                |is: &Value, want: f64| assert!((is.as_f64().unwrap() - want).abs() < 1e-3 * want);
            near(&points["wall"][at], row.wall);
            match row.loss {
                Some(loss) => near(&points["loss"][at], loss),
                None => assert!(points["loss"][at].is_null()),
            }
            assert_eq!(points["samples"][at], row.samples_applied);
            assert_eq!(points["lag"][at], row.lag);
            seen += 1;
        }
    }
    assert_eq!(seen, 300);
    // Every event that is this run's, with its words.
    let told = first["events"].as_array().unwrap().iter();
    let told: Vec<&str> = told.map(|event| event["text"].as_str().unwrap()).collect();
    let text = std::fs::read_to_string(one.join("events.jsonl")).unwrap();
    let written = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let own: Vec<Value> = written.filter(|event| event["run"].is_null()).collect();
    let own: Vec<&str> = own
        .iter()
        .map(|event| event["text"].as_str().unwrap())
        .collect();
    assert_eq!(told, own);
    assert_eq!(
        first["validations"][1],
        serde_json::json!([6400, 1.7e9 + 32.0, 0.9])
    );
    let files = first["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| &file["name"]);
    assert_eq!(
        files.collect::<Vec<_>>(),
        ["config.toml", "group-2-rank-1.log", "server-1.log"]
    );
    assert_eq!(second["look"]["state"], "starting");
}

#[test]
fn what_was_told_is_not_told_again() {
    let root = tempfile::tempdir().unwrap();
    crate::fixture::folder(root.path());
    let write = |rows: &[tradewind_common::record::StepRecord]| {
        std::fs::write(
            root.path().join("metrics.jsonl"),
            crate::fixture::lines(rows),
        )
        .unwrap();
    };
    let all = rows();
    write(&all[..200]);
    let place = tradewind_folder::found::FoundRun::find(Some(root.path())).unwrap();
    let (_to, standing) = tokio::sync::watch::channel(None);
    let mut observer = crate::observe::Observer::new(place, standing);
    let mut sent = Sent::default();
    let mut news = || sent.news(&[None, Some(Arc::new(observer.look(1.7e9)))])["runs"][0].clone();
    let told = |news: &Value| -> Vec<(u64, usize)> {
        let curves = news["curves"].as_array().unwrap().iter();
        let count = |curve: &Value| curve["points"]["wall"].as_array().unwrap().len();
        curves
            .map(|curve| (curve["from"].as_u64().unwrap(), count(curve)))
            .collect()
    };
    let first = news();
    assert_eq!(
        (&first["run"], &first["new"]),
        (&Value::from(1), &Value::from(true))
    );
    let counts: Vec<u64> = (0..3)
        .map(|group| all[..200].iter().filter(|row| row.group == group).count() as u64)
        .collect();
    let whole: Vec<(u64, usize)> = counts.iter().map(|count| (0, *count as usize)).collect();
    assert_eq!(told(&first), whole);
    let second = news();
    assert_eq!(
        (told(&second), &second["joined"], &second["new"]),
        (vec![], &Value::Null, &Value::from(false))
    );
    write(&all[..210]);
    let third = news();
    let fresh: usize = told(&third).iter().map(|(_, count)| count - 1).sum();
    assert_eq!(fresh, 10, "and of each curve the last point again");
    assert!(
        told(&third)
            .iter()
            .zip(&counts)
            .all(|((from, _), count)| from + 1 == *count)
    );
}
