//! The page in a real browser, headless Chromium, over the DevTools protocol on two pipes. Without one it says so.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use base64::Engine;
use serde_json::{Value, json};

use crate::fixture::{folder, with_faults};
use crate::http::tests::Served;

/// Looks at the page until what must come is there.
const LOOKS: u32 = 600;
const LOOK: Duration = Duration::from_millis(100);

/// A browser with one page.
pub(super) struct Browser {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    next: u64,
    session: Option<String>,
    _profile: tempfile::TempDir,
}

/// The browser of this machine, if it has one: `CHROMIUM`, or one of the usual names.
fn program() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("CHROMIUM") {
        return Some(PathBuf::from(named));
    }
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let mut places =
        std::env::split_paths(&path).flat_map(|folder| names.map(|name| folder.join(name)));
    places.find(|place| place.is_file())
}

impl Browser {
    pub(super) fn open() -> Option<Self> {
        let Some(program) = program() else {
            eprintln!("skipped: here is no Chromium (apt-get install chromium, or set CHROMIUM)");
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        // The protocol is on descriptors 3 and 4.
        let mut process = Command::new("sh")
            .args([
                "-c",
                "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null",
            ])
            .arg(program)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args([
                "--disable-background-networking",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut browser = Self {
            to: process.stdin.take().unwrap(),
            from: BufReader::new(process.stdout.take().unwrap()),
            process,
            next: 0,
            session: None,
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        browser.call("Page.enable", json!({}));
        browser.call("Runtime.enable", json!({}));
        Some(browser)
    }

    /// Calls a method of the protocol and waits for its answer.
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(message.to_string().as_bytes()).unwrap();
        self.to.write_all(&[0]).unwrap();
        self.to.flush().unwrap();
        loop {
            let mut read = Vec::new();
            self.from.read_until(0, &mut read).unwrap();
            assert!(read.pop().is_some(), "the browser has ended");
            let answer: Value = serde_json::from_slice(&read).unwrap();
            if answer["id"] == self.next {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
        }
    }

    fn size(&mut self, width: u32, height: u32) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    fn scheme(&mut self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    pub(super) fn go(&mut self, address: &str) {
        self.call("Page.navigate", json!({"url": address}));
    }

    /// The value of an expression.
    pub(super) fn value(&mut self, expression: &str) -> Value {
        let told = self.evaluate(expression);
        told.unwrap_or_else(|exception| panic!("{expression}: {exception}"))
    }

    fn evaluate(&mut self, expression: &str) -> Result<Value, Value> {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut told = self.call("Runtime.evaluate", asked);
        match told["exceptionDetails"].take() {
            Value::Null => Ok(told["result"]["value"].take()),
            exception => Err(exception),
        }
    }

    /// What an element shows.
    fn text(&mut self, selector: &str) -> String {
        let value = self.value(&format!(
            "document.querySelector({selector:?})?.innerText ?? ''"
        ));
        value.as_str().unwrap().to_owned()
    }

    /// Waits until an expression is true.
    pub(super) fn wait(&mut self, expression: &str) {
        for _ in 0..LOOKS {
            // The page may not be there yet.
            if self.evaluate(expression) == Ok(Value::Bool(true)) {
                return;
            }
            std::thread::sleep(LOOK);
        }
        let body = self.value("document.body.innerText");
        panic!("never: {expression}; the page says {body}");
    }

    pub(super) fn key(&mut self, key: &str) {
        let text = if key == "Enter" { "\r" } else { key };
        let down = json!({"type": "keyDown", "key": key, "text": text});
        self.call("Input.dispatchKeyEvent", down);
        self.call(
            "Input.dispatchKeyEvent",
            json!({"type": "keyUp", "key": key}),
        );
    }

    /// Keeps a picture of the window, or of all of the page, in the folder that `WATCH_PICTURES` names.
    fn picture(&mut self, name: &str, all: bool) {
        let Some(folder) = std::env::var_os("WATCH_PICTURES") else {
            return;
        };
        let asked = json!({"format": "png", "captureBeyondViewport": all});
        let told = self.call("Page.captureScreenshot", asked);
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(told["data"].as_str().unwrap())
            .unwrap();
        std::fs::write(Path::new(&folder).join(name), bytes).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The first run is there.
pub(super) const THERE: &str =
    "Number(document.documentElement.dataset.told) > 0 && runs.length > 0";

/// Whether there is a dot of this colour, so many pixels below the upper edge of the curves, where server 1 died.
fn drawn(colour: &str, below: u32) -> String {
    format!(
        "(() => {{ const {{ ctx, bbox, valToPos }} = charts.loss.plot, scale = devicePixelRatio;
        const x = valToPos(12.5 + 1.7e9 - runs[0].look.begun, 'x', true);
        const [r, g, b] = ctx.getImageData(Math.round(x) + 2, bbox.top + {below} * scale, 1, 1).data;
        return '#' + [r, g, b].map(part => part.toString(16).padStart(2, '0')).join('') === colour({colour:?}); }})()"
    )
}

#[test]
fn the_page_shows_what_is_in_the_run() {
    let Some(mut browser) = Browser::open() else {
        return;
    };
    let root = tempfile::tempdir().unwrap();
    with_faults(root.path());
    let served = Served::new(&[root.path()], "secret");
    browser.size(1280, 900);
    browser.scheme("light");
    browser.go(&format!("http://{}/?token=secret", served.address));
    browser.wait(THERE);
    assert_eq!(browser.text("#state"), "completed");
    assert_eq!(browser.text("#name"), "r");
    let tiles = browser.text("#tiles");
    for told in [
        "validation RMSE\n0.75 K",
        "Samples\n80 %",
        "Updates\n299",
        "Goodput\n",
    ] {
        assert!(tiles.contains(told), "{told:?} in {tiles}");
    }
    assert!(!tiles.contains("Time left"), "{tiles}");
    // Its faults, the newest first, and nothing of another run.
    let events = browser.text("#events");
    let at = |words: &str| {
        events
            .find(words)
            .unwrap_or_else(|| panic!("no {words:?} in {events}"))
    };
    assert!(at("rank 1 of group 2 was killed") < at("server 0 answers for shard 1"));
    assert!(at("server 0 answers for shard 1") < at("server 1 was killed by signal 9"));
    assert!(!events.contains("another run"));
    // Each in a sentence, with what was done about it.
    let incidents = browser.text("#incidents");
    let told: Vec<&str> = incidents.lines().collect();
    let [rank, server, lost] = told[..] else {
        panic!("{incidents}")
    };
    assert!(
        rank.ends_with("0:22 into training: rank 1 of group 2 was killed by signal 9."),
        "{rank}"
    );
    let mended = "0:13 into training: server 1 was killed by signal 9; server 0 answers for shard 1: server 1 is gone \
                  (after 400 ms); server 1 is started again, as life 2 (after 500 ms).";
    assert!(server.ends_with(mended), "{server}");
    assert_eq!(lost, "Nothing that servers had acknowledged was lost.");
    let rows = browser.value(
        "[...document.querySelectorAll('#groups tbody tr')].map(row => row.cells[4].innerText)",
    );
    assert_eq!(
        rows,
        json!(["100", "100", "100"]),
        "exchanges of each group"
    );
    let servers = browser.text("#servers");
    assert!(
        servers.contains("ended") && servers.contains("shard 0, 1"),
        "{servers}"
    );
    // What was held at the end, and nothing that only a run has that goes on.
    let holders = "[...document.querySelectorAll('#shards tbody tr')].map(row => [row.cells[1].innerText, row.cells[2].innerText])";
    assert_eq!(
        browser.value(holders),
        json!([["server 0", "server 1"], ["server 0", "–"]])
    );
    assert!(!servers.contains("lease"), "{servers}");
    // A fault is above what mended it, and told before it, though that came later.
    let both = "{ const died = runs[0].events.find(event => event.kind === 'process_died');
        runs[0].events.push({ ...died, kind: 'promoted', mended: true, text: 'mended' }); charts.loss.plot.redraw(); 0 }";
    browser.value(both);
    browser.wait(&drawn("--bad", 4));
    browser.wait(&drawn("--good", 11));
    let at = "{ const at = charts.loss.plot.valToPos(12.5 + 1.7e9 - runs[0].look.begun, 'x'); charts.loss.plot.setCursor({ left: at, top: 10 }); 0 }";
    browser.value(at);
    browser.wait("$('near').className === 'fault'");
    // What is drawn is what was recorded: of each group every loss that was finite.
    let drawn = "charts.loss.plot.data.slice(1, 4).map(line => line.filter(y => typeof y === 'number').length)";
    assert_eq!(browser.value(drawn), json!([99, 99, 99]));
    assert_eq!(
        browser.value("charts.validation.plot.data[1]"),
        json!([1.5, 0.9, 0.75])
    );
    assert_eq!(
        browser.value("document.querySelectorAll('.u-legend .u-series').length > 4"),
        json!(true)
    );
    // Ranks are shown when their group is asked for, by keyboard.
    browser.value("document.querySelectorAll('#groups tbody tr')[2].focus()");
    browser.key("Enter");
    browser.wait("document.querySelector('#groups').innerText.includes('started 2 times')");
    browser.key("f");
    browser.wait("!document.querySelector('#events').innerText.includes('snapshot 1')");
    browser.key("s");
    browser.wait("charts.loss.plot.series[0].label === 'samples'");
    assert_eq!(
        browser.value("charts.validation.plot.data[0]"),
        json!([3200, 6400, 9600])
    );
    browser.key("l");
    browser.wait("charts.loss.plot.scales.y.distr === 3");
}

#[test]
fn logs_are_shown_as_text_and_searched() {
    let Some(mut browser) = Browser::open() else {
        return;
    };
    let root = tempfile::tempdir().unwrap();
    with_faults(root.path());
    let served = Served::new(&[root.path()], "secret");
    browser.go(&format!("http://{}/?token=secret", served.address));
    browser.wait(THERE);
    browser.value("{ const file = document.querySelector('#file'); file.value = 'server-1.log'; file.dispatchEvent(new Event('change')); 0 }");
    browser
        .wait("document.querySelector('#text').innerText.includes('<b>not shown as markup</b>')");
    assert_eq!(
        browser.value("document.querySelectorAll('#text b').length"),
        json!(0)
    );
    let log = root.path().join("logs/server-1.log");
    let more = std::fs::read_to_string(&log).unwrap() + "written later\n";
    std::fs::write(&log, more).unwrap();
    browser.wait("document.querySelector('#text').innerText.includes('written later')");
    browser.key("/");
    for letter in ["k", "i", "l", "l", "e", "d"] {
        browser.key(letter);
    }
    browser.wait("document.querySelector('#text mark')?.innerText === 'killed'");
    assert_eq!(browser.text("#found"), "1 lines");
}

#[test]
fn it_says_when_nobody_answers_and_fits_a_narrow_window() {
    let Some(mut browser) = Browser::open() else {
        return;
    };
    let root = tempfile::tempdir().unwrap();
    let (one, two) = (root.path().join("one"), root.path().join("two"));
    with_faults(&one);
    folder(&two);
    let _launcher = tradewind_folder::lock::take(&two).unwrap().unwrap();
    let served = Served::new(&[&one, &two], "secret");
    browser.size(390, 844);
    browser.scheme("dark");
    browser.go(&format!("http://{}/?token=secret", served.address));
    browser.wait(&format!("{THERE} && runs.length === 2"));
    assert_eq!(
        browser.value("document.documentElement.dataset.theme"),
        json!("dark")
    );
    assert_eq!(
        browser.value("document.documentElement.scrollWidth <= innerWidth"),
        json!(true),
        "it fits"
    );
    let runs = browser.text("#runs-table");
    assert!(
        runs.contains("completed") && runs.contains("starting"),
        "{runs}"
    );
    browser.key("2");
    browser.wait("document.querySelector('#state').innerText === 'starting'");
    browser.key("[");
    browser.wait("document.querySelector('#state').innerText === 'completed'");
    browser.picture("narrow-two.png", true);
    drop(served);
    browser.wait("document.querySelector('#gone').innerText.includes('`tradewind watch` ')");
    browser.wait("document.querySelector('#link').className === 'off'");
}

/// Pictures of a run that `WATCH_RUN` names: `light.png` and `dark.png` are docs/watching.png and docs/watching-dark.png.
#[test]
#[ignore = "it makes pictures: WATCH_RUN=FOLDER WATCH_PICTURES=FOLDER"]
fn pictures() {
    let mut browser = Browser::open().expect("a browser");
    let run = PathBuf::from(std::env::var_os("WATCH_RUN").expect("WATCH_RUN"));
    let served = Served::new(&[&run], "secret");
    for (name, scheme, width, height) in [
        ("light", "light", 1280, 2240),
        ("dark", "dark", 1280, 1686),
        ("narrow", "light", 390, 844),
    ] {
        browser.size(width, height);
        browser.scheme(scheme);
        browser.go(&format!("http://{}/?token=secret", served.address));
        browser.wait(THERE);
        std::thread::sleep(Duration::from_secs(2));
        browser.picture(&format!("{name}.png"), false);
        browser.picture(&format!("{name}-all.png"), true);
    }
}
