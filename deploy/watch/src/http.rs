//! The page over HTTP: read-only, for whoever has the token.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use futures_util::stream::{Stream, unfold};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tradewind_proto::auth::is_same;

use crate::files::{self, NoSuchFile};
use crate::observe::LastSight;
use crate::stream::Sent;

/// Browsers that are told what is new at a time.
const BROWSERS_MAX: usize = 32;

/// Pause between two tellings.
const PAUSE: Duration = Duration::from_secs(1);

/// Bytes of the words of a search.
const WORDS_MAX: usize = 200;

/// What is shown, and to whom.
#[derive(Debug)]
pub(crate) struct Site {
    token: String,
    page: String,
    policy: HeaderValue,
    runs: Vec<(PathBuf, LastSight)>,
    browsers: Arc<Semaphore>,
}

impl Site {
    /// `nonce` marks the page's own script.
    pub(crate) fn new(token: String, nonce: &str, runs: Vec<(PathBuf, LastSight)>) -> Self {
        let policy = format!(
            "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src data:; \
             connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        Self {
            token,
            page: page(nonce),
            policy: HeaderValue::from_str(&policy).expect("it is ASCII"),
            runs,
            browsers: Arc::new(Semaphore::new(BROWSERS_MAX)),
        }
    }
}

/// All that can be asked for.
pub(crate) fn router(site: Site) -> Router {
    let site = Arc::new(site);
    Router::new()
        .route("/", get(show))
        .route("/news", get(news))
        .route("/runs/{run}/texts/{name}", get(text))
        .layer(from_fn_with_state(site.clone(), ask_token))
        .with_state(site)
}

/// The page with its style and script, which need nothing else.
fn page(nonce: &str) -> String {
    include_str!("page/index.html")
        .replace("NONCE", nonce)
        .replace("/* UPLOT.CSS */", include_str!("page/uplot/uPlot.min.css"))
        .replace("/* WATCH.CSS */", include_str!("page/watch.css"))
        .replace(
            "/* UPLOT.JS */",
            include_str!("page/uplot/uPlot.iife.min.js"),
        )
        .replace("/* WATCH.JS */", include_str!("page/watch.js"))
}

type Asked = Query<HashMap<String, String>>;

async fn ask_token(
    State(site): State<Arc<Site>>,
    asked: Asked,
    request: Request,
    next: Next,
) -> Response {
    let shown = asked.get("token").map_or("", String::as_str);
    let mut response = match is_same(shown.as_bytes(), site.token.as_bytes()) {
        true => next.run(request).await,
        false => {
            let text = "this page needs the token of `tradewind watch`: open the address that it has printed\n";
            (StatusCode::FORBIDDEN, text).into_response()
        }
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, site.policy.clone());
    let fixed = [
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn show(State(site): State<Arc<Site>>) -> Html<String> {
    Html(site.page.clone())
}

async fn news(State(site): State<Arc<Site>>) -> Response {
    let Ok(permit) = site.browsers.clone().try_acquire_owned() else {
        let text = format!("{BROWSERS_MAX} pages are open already\n");
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    let stream = Sse::new(tellings(site, permit));
    stream.keep_alive(KeepAlive::default()).into_response()
}

/// What is new, once a second, for as long as the browser takes it.
fn tellings(
    site: Arc<Site>,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let begin = (Sent::default(), true);
    unfold(begin, move |(mut sent, is_first)| {
        let site = site.clone();
        let _held = &permit;
        async move {
            if !is_first {
                sleep(PAUSE).await;
            }
            let sights: Vec<_> = site
                .runs
                .iter()
                .map(|(_, last)| last.borrow().clone())
                .collect();
            let news = sent.news(&sights).to_string();
            Some((Ok(Event::default().data(news)), (sent, false)))
        }
    })
}

async fn text(
    State(site): State<Arc<Site>>,
    Path((run, name)): Path<(usize, String)>,
    asked: Asked,
) -> Response {
    let Some((folder, _)) = site.runs.get(run) else {
        return refuse(StatusCode::NOT_FOUND, format!("there is no run {run}"));
    };
    let folder = folder.clone();
    let from = asked.get("from").and_then(|from| from.parse().ok());
    let words = asked
        .get("search")
        .cloned()
        .filter(|words| !words.is_empty());
    if words.as_ref().is_some_and(|words| words.len() > WORDS_MAX) {
        return refuse(
            StatusCode::BAD_REQUEST,
            format!("search for {WORDS_MAX} bytes at most"),
        );
    }
    let read = tradewind_process::supervise_blocking("reading a log", move || match words {
        Some(words) => files::search(&folder, &name, &words).and_then(|found| json(&found)),
        None => files::read(&folder, &name, from).and_then(|page| json(&page)),
    });
    match read.await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) if error.is::<NoSuchFile>() => {
            refuse(StatusCode::NOT_FOUND, error.to_string())
        }
        Ok(Err(error)) => refuse(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")),
        Err(ends) => refuse(StatusCode::SERVICE_UNAVAILABLE, ends.to_string()),
    }
}

fn json(is: &impl Serialize) -> anyhow::Result<Response> {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    Ok((kind, serde_json::to_string(is)?).into_response())
}

fn refuse(status: StatusCode, why: String) -> Response {
    (status, why + "\n").into_response()
}

#[cfg(test)]
pub(crate) mod tests;
