//! Payments over HTTP that a client may send again without paying twice: `Idempotency-Key`, on axum and SQLite.
//!
//! `cargo run -p examples --example payments_api` serves, and prints what to try with curl.
//! `cargo run -p examples --example payments_api -- --demo` lets a client with little patience loose on a slow server.
//!
//! The statuses are those of [the IETF's draft][draft]: 400 without a usable key, 409 while the first request is being
//! processed, 422 for a key that came with another payment. The first answer again, with its status, and the header
//! `Idempotent-Replayed: true` are [Stripe's], as is that a declined payment is an answer like any other.
//!
//! [draft]: https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07
//! [Stripe's]: https://docs.stripe.com/api/idempotent_requests
//!
//! # 409 on SQLite
//!
//! On PostgreSQL and MariaDB/MySQL a second request waits for the first one's claim, and gets its answer, or
//! `Error::InProgress`, which is 409. SQLite has one writer at a time for the whole database, and does not say what
//! that one writes: a second request would wait like any other payment, and after five seconds (sqlx's `busy_timeout`)
//! get a transient error, which is 503. So this server remembers which keys it is working on. `InFlight` decides
//! nothing but that status: what is paid is decided by the claim. Two servers on one file do not know of each other's
//! requests; there the second request waits, and gets the first one's answer or 503.

use std::collections::HashSet;
use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use examples::http::{POLICY_PATH, Problem, idempotency_key};
use examples::payer::{Answer as Answered, Attempt, Payer};
use idempotent_runtime::{idempotent, migrate};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{SqlitePool, SqliteTransaction};
use tokio::net::TcpListener;
use tokio::time::sleep;

/// What a client sends.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)] // what is not in the fingerprint must not be in the payment
struct Payment {
    to: String,
    cents: i64,
    note: Option<String>,
}

/// What a client gets, kept as it was sent: byte for byte the same on every retry.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    status: u16,
    body: String,
}

/// Takes the money from the account and writes the payment down.
///
/// A declined payment is `Ok`: decided, kept, and told again to whoever asks again. `Err` is what a retry may change.
#[idempotent(
    key = "{key}",
    missing = "reject",
    sender = "{account}",
    consumer = "payments.create",
    fingerprint = "{payment.to}/{payment.cents}/{payment.note}",
    replay,
    retention = "24h"
)]
async fn create_payment(
    tx: &mut SqliteTransaction<'_>,
    account: &str,
    key: Option<&str>,
    payment: &Payment,
    pause: Duration,
) -> Result<Answer> {
    let Payment { to, cents, note } = payment;
    let take = "UPDATE account SET cents = cents - ?1 WHERE id = ?2 AND cents >= ?1";
    let taken = sqlx::query(take).bind(cents).bind(account).execute(&mut **tx).await?;
    if taken.rows_affected() == 0 {
        let body = json!({ "status": "declined", "reason": "the account does not have so much" });
        return Ok(Answer { status: 402, body: body.to_string() });
    }
    let insert = "INSERT INTO payment (account, payee, cents, note) VALUES (?, ?, ?, ?) RETURNING id";
    let insert = sqlx::query_scalar(insert).bind(account).bind(to).bind(cents).bind(note);
    let id: i64 = insert.fetch_one(&mut **tx).await?;
    sleep(pause).await;
    let body = json!({ "status": "paid", "id": id, "from": account, "to": to, "cents": cents });
    Ok(Answer { status: 201, body: body.to_string() })
}

/// `POST /payments`
async fn post_payment(State(server): State<Server>, headers: HeaderMap, body: Bytes) -> Result<Response, Problem> {
    let account = server.authenticate(&headers).await?;
    let key = idempotency_key(&headers)?;
    let payment: Payment = serde_json::from_slice(&body)
        .map_err(|error| Problem::new(StatusCode::BAD_REQUEST, format!("The body is no payment: {error}.")))?;
    if payment.cents <= 0 {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "A payment is of at least one cent."));
    }
    let in_flight = server.in_flight.enter(&account, key.as_deref()).ok_or_else(Problem::in_progress)?;
    // axum drops the future of a request whose client has gone, and the work would be rolled back. In a task of its own
    // it is done, and its answer is there when the client asks again.
    let work = tokio::spawn(async move {
        let _in_flight = in_flight;
        let Pauses { handler, answer } = server.pauses;
        let outcome = create_payment(&server.pool, &account, key.as_deref(), &payment, handler).await;
        sleep(answer).await;
        outcome
    });
    let outcome = match work.await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => return Err(failed(&error)),
        Err(panic) => return Err(failed(&panic.into())),
    };
    let replayed = outcome.is_duplicate();
    // A claim without an answer would be of a version of this server that had no `replay`.
    let Some(Answer { status, body }) = outcome.value() else {
        return Err(failed(&anyhow!("the payment was made, and its answer was not kept")));
    };
    let status = StatusCode::from_u16(status).map_err(|error| failed(&error.into()))?;
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
    if replayed {
        response.headers_mut().insert("idempotent-replayed", header::HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// What the library says, or 500, which the operator has to know more about than the client.
fn failed(error: &anyhow::Error) -> Problem {
    let problem = Problem::of(error.as_ref());
    if problem.status().is_server_error() {
        eprintln!("{}: {error:#}", problem.status());
    }
    problem
}

/// `GET /payments`: what an account has paid.
async fn get_payments(State(server): State<Server>, headers: HeaderMap) -> Result<Response, Problem> {
    let account = server.authenticate(&headers).await?;
    let select = "SELECT id, payee, cents FROM payment WHERE account = ? ORDER BY id";
    let paid = sqlx::query_as::<_, (i64, String, i64)>(select).bind(account).fetch_all(&server.pool).await;
    let paid = paid.map_err(|error| failed(&error.into()))?;
    let list: Vec<_> = paid.iter().map(|(id, to, cents)| json!({ "id": id, "to": to, "cents": cents })).collect();
    Ok(([(header::CONTENT_TYPE, "application/json")], json!(list).to_string()).into_response())
}

/// What the draft asks a server to publish.
const POLICY: &str = "\
POST /payments needs the header Idempotency-Key.

# the-key
1 to 255 characters, in double quotes (RFC 9651, String) or, without spaces, bare. Choose a UUID. Keys belong to an account.

# kept-for
A key is kept for 24 hours at least. After that it may stand for a new payment.

# while-it-is-processed
409. Send the request again after a pause.

# another-payment
422 if `to`, `cents` or `note` differ from what the key came with first. A new payment needs a new key.

# the-same-answer
A request that was answered with 201 or 402 is answered the same for ever after, with the header Idempotent-Replayed: true.
Every other answer is not kept: correct the request if it is to blame, and send it again with the same key.
";

/// What the requests share.
#[derive(Clone)]
struct Server {
    pool: SqlitePool,
    in_flight: InFlight,
    pauses: Pauses,
}

/// To try out what happens in between: how long a payment takes, and how long from there to the answer.
#[derive(Clone, Copy, Default)]
struct Pauses {
    handler: Duration,
    answer: Duration,
}

impl Server {
    /// Opens the database, and creates what is not there.
    async fn open(database: &Path, pauses: Pauses) -> Result<Self> {
        let options = SqliteConnectOptions::new().filename(database).create_if_missing(true);
        // Readers do not wait for the writer.
        let pool = SqlitePool::connect_with(options.journal_mode(SqliteJournalMode::Wal)).await?;
        migrate(&pool).await?;
        let tables = "\
            CREATE TABLE IF NOT EXISTS account (id TEXT PRIMARY KEY, token TEXT NOT NULL UNIQUE, cents INTEGER NOT NULL);
            CREATE TABLE IF NOT EXISTS payment
                (id INTEGER PRIMARY KEY, account TEXT NOT NULL, payee TEXT NOT NULL, cents INTEGER NOT NULL, note TEXT);
            INSERT OR IGNORE INTO account VALUES ('alice', 'alices-token', 100000), ('bob', 'bobs-token', 100000);";
        sqlx::raw_sql(tables).execute(&pool).await?;
        Ok(Self { pool, in_flight: InFlight::default(), pauses })
    }

    /// Whose token it is.
    async fn authenticate(&self, headers: &HeaderMap) -> Result<String, Problem> {
        let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token =
            value.and_then(|value| value.split_once(' ')).filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"));
        let select = "SELECT id FROM account WHERE token = ?";
        let account = sqlx::query_scalar(select).bind(token.map(|(_, token)| token)).fetch_optional(&self.pool).await;
        let account: Option<String> = account.map_err(|error| failed(&error.into()))?;
        account.ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED, "Send the header Authorization: Bearer <token>."))
    }

    async fn serve(self, listener: TcpListener) -> std::io::Result<()> {
        let router = Router::new()
            .route("/payments", post(post_payment).get(get_payments))
            .route(POLICY_PATH, get(|| async { POLICY }))
            .with_state(self);
        axum::serve(listener, router).await
    }
}

/// The keys that this process is working on, each with its account. See the top of the file.
#[derive(Clone, Default)]
struct InFlight(Arc<Mutex<HashSet<(String, String)>>>);

impl InFlight {
    /// `None` if a request of this key is in flight. Without a key there is nothing to hold: the handler refuses the request.
    fn enter(&self, account: &str, key: Option<&str>) -> Option<Held> {
        let key = key.filter(|key| !key.trim().is_empty());
        let held = key.map(|key| (account.to_owned(), key.to_owned()));
        let free = held.as_ref().is_none_or(|held| self.lock().insert(held.clone()));
        free.then(|| Held { of: self.clone(), held })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<(String, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Holds a key until the request is done, whatever its end.
struct Held {
    of: InFlight,
    held: Option<(String, String)>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(held) = &self.held {
            self.of.lock().remove(held);
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    examples::exit_code(run().await)
}

const USAGE: &str = "\
usage: cargo run -p examples --example payments_api -- [--demo]
           [--listen 127.0.0.1:3000] [--database payments.db] [--handler-takes MILLISECONDS] [--answer-takes MILLISECONDS]";

async fn run() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let folder = tempfile::tempdir()?;
    let (mut listen, mut database) = ("127.0.0.1:3000".to_owned(), folder.path().join("payments.db"));
    let mut pauses = Pauses::default();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} has no value\n{USAGE}"));
        match argument.as_str() {
            "--demo" => return demo(&database).await,
            "--listen" => listen = value()?,
            "--database" => database = PathBuf::from(value()?),
            "--handler-takes" => pauses.handler = Duration::from_millis(value()?.parse()?),
            "--answer-takes" => pauses.answer = Duration::from_millis(value()?.parse()?),
            _ => bail!("unknown argument `{argument}`\n{USAGE}"),
        }
    }
    let listener = TcpListener::bind(&listen).await.with_context(|| format!("cannot listen on {listen}\n{USAGE}"))?;
    let url = format!("http://{}", listener.local_addr()?);
    let server = Server::open(&database, pauses).await?;
    println!("listening on {url}, with the database {}\n", database.display());
    println!("Send this twice, and with another amount or key:\n");
    println!("curl -i {url}/payments -H 'Authorization: Bearer alices-token' -H 'Idempotency-Key: \"order-1\"' \\");
    println!("     -d '{{\"to\": \"shop\", \"cents\": 1200}}'\n");
    println!("What was paid, and the rules:\n");
    println!("curl {url}/payments -H 'Authorization: Bearer alices-token'");
    println!("curl {url}{POLICY_PATH}");
    Ok(server.serve(listener).await?)
}

/// A client that waits 300 ms for an answer, and a server that takes a second for a payment.
async fn demo(database: &Path) -> Result<()> {
    let pauses = Pauses { handler: Duration::from_secs(1), ..Pauses::default() };
    let server = Server::open(database, pauses).await?;
    let pool = server.pool.clone();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(server.serve(listener));
    let impatient = Payer::new(&url, "alices-token", Duration::from_millis(300))?;
    let alice = Payer::new(&url, "alices-token", Duration::from_secs(10))?;
    let bob = Payer::new(&url, "bobs-token", Duration::from_secs(10))?;

    println!("alice pays, and waits 300 ms for each answer:");
    let payment = r#"{"to": "shop", "cents": 1200}"#;
    let (attempts, first) = impatient.pay("order-1", payment).await?;
    for same in attempts.chunk_by(|one, next| one == next) {
        show(&same[0], same.len());
    }
    println!("she pays with the same key, and asks for the answer once more:");
    show(&alice.send(&["order-1"], payment).await, 1);
    println!("she uses the key for another payment:");
    show(&alice.send(&["order-1"], r#"{"to": "shop", "cents": 9900}"#).await, 1);
    println!("she forgets the key:");
    show(&alice.send(&[], payment).await, 1);
    println!("bob, who has the same key by chance:");
    show(&bob.send(&["order-1"], payment).await, 1);

    let payments: i64 = sqlx::query_scalar("SELECT count(*) FROM payment").fetch_one(&pool).await?;
    println!(
        "\n{} requests of alice's payment, {payments} payments in the database: hers and bob's",
        attempts.len() + 1
    );
    ensure!(first.status == 201 && payments == 2, "expected one payment of each");
    Ok(())
}

fn show(attempt: &Attempt, times: usize) {
    match attempt {
        Attempt::Unanswered => println!("{times:>4} x  no answer in time"),
        Attempt::Answered(Answered { status, replayed, body, .. }) => {
            let replayed = if replayed.is_some() { "  Idempotent-Replayed: true" } else { "" };
            println!("{times:>4} x  {status}{replayed}  {body}");
        }
    }
}
