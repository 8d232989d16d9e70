//! `payments_api` as a process of its own, driven over HTTP: the rules of the IETF's draft as a table, a client that
//! gives up waiting, and `kill -9` at the two moments that matter.
//!
//! The draft: <https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07>

mod built;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use examples::http::POLICY_PATH;
use examples::payer::{Answer, Attempt, Payer};
use serde_json::Value;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection};
use tempfile::TempDir;
use tokio::task::JoinSet;

const PATIENT: Duration = Duration::from_secs(20);
const PAYMENT: &str = r#"{"to": "shop", "cents": 1200}"#;

/// A server process, killed when it goes out of scope.
struct Server {
    process: Child,
    url: String,
    /// Open, so that the server can print.
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    fn start(database: &Path, arguments: &[&str]) -> Self {
        let mut command = built::example("payments_api");
        command.args(["--listen", "127.0.0.1:0", "--database"]).arg(database).args(arguments).stdout(Stdio::piped());
        let mut process = command.spawn().expect("the server starts");
        let mut line = String::new();
        let mut stdout = BufReader::new(process.stdout.take().expect("piped"));
        stdout.read_line(&mut line).expect("a line");
        let url = line.split([' ', ',']).find(|word| word.starts_with("http://")).expect("an address").to_owned();
        Self { process, url, _stdout: stdout }
    }

    fn payer(&self, account: &str, patience: Duration) -> Payer {
        Payer::new(&self.url, &format!("{account}s-token"), patience).expect("a client")
    }

    /// `kill -9`, where there is one.
    fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A server, its database, and a look into it.
struct World {
    server: Server,
    database: SqliteConnection,
    folder: TempDir,
}

impl World {
    async fn new(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let server = Server::start(&folder.path().join("payments.db"), arguments);
        let options = SqliteConnectOptions::new().filename(folder.path().join("payments.db"));
        let database = options.connect().await.expect("the server has created it");
        Self { server, database, folder }
    }

    fn another(&self, arguments: &[&str]) -> Server {
        Server::start(&self.folder.path().join("payments.db"), arguments)
    }

    async fn number(&mut self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&mut self.database).await.expect(sql)
    }

    async fn payments(&mut self) -> i64 {
        self.number("SELECT count(*) FROM payment").await
    }
}

fn answered(attempt: Attempt) -> Answer {
    match attempt {
        Attempt::Answered(answer) => answer,
        Attempt::Unanswered => panic!("no answer"),
    }
}

/// An error answer: a problem of RFC 9457 whose type is a link into the server's own policy.
fn assert_problem_of_key(answer: &Answer, policy: &str, rule: &str) {
    assert_eq!(answer.content_type, "application/problem+json", "{rule}");
    let problem: Value = serde_json::from_str(&answer.body).expect(rule);
    assert_eq!(problem["status"], answer.status, "{rule}");
    assert!(problem["title"].is_string() && problem["detail"].is_string(), "{rule}: {problem}");
    let (path, heading) = problem["type"].as_str().and_then(|link| link.split_once('#')).expect(rule);
    assert_eq!(path, POLICY_PATH, "{rule}");
    assert!(policy.contains(&format!("\n# {heading}\n")), "{rule}: no `{heading}` in the policy");
}

/// What one request gets, and what the draft says about it.
struct Rule {
    /// The heading in the draft, and what it asks for; or who else.
    says: &'static str,
    keys: &'static [&'static str],
    account: &'static str,
    payment: &'static str,
    status: u16,
    replayed: bool,
    /// How many payments there are then.
    payments: i64,
}

const SYNTAX: &str = "Syntax: the value is a String, given once";
const RETRY: &str = "Enforcement Scenarios: a retry after the end gets the first result, success or error";
const REUSE: &str = "Error Scenarios: 422 for another payload";
const FIRST: &str = "Enforcement Scenarios: a first request is processed";
const MISSING: &str = "Error Scenarios: 400 without the key";
const FORMAT: &str = "Security Considerations: a fixed format, validated before anything else";
const COMPOSITE: &str = "Security Considerations: nobody gets the answers of others";
const STRIPE: &str = "Stripe: keys without quotes; up to 255 characters";
const CORRECTED: &str = "Stripe: what fails validation is not kept";

const OTHER_PAYMENT: &str = r#"{"to": "shop", "cents": 1201}"#;
const SAME_PAYMENT: &str = r#"{ "cents":1200, "to":"sh\u006fp", "note":null }"#;
const TOO_MUCH: &str = r#"{"to": "shop", "cents": 99999999}"#;

macro_rules! rules {
    ($($says:ident, $keys:expr, $account:literal, $payment:expr => $status:literal $replayed:ident $payments:literal;)+) => {
        &[$(Rule {
            says: $says, keys: &$keys, account: $account, payment: $payment, status: $status, replayed: rules!($replayed),
            payments: $payments,
        }),+]
    };
    (first) => { false };
    (again) => { true };
}

/// Sent in this order, to one server.
const RULES: &[Rule] = rules! {
    FIRST,     [r#""8e03978e-40d5""#],      "alice", PAYMENT                       => 201 first 1;
    RETRY,     [r#""8e03978e-40d5""#],      "alice", PAYMENT                       => 201 again 1;
    RETRY,     [r#""8e03978e-40d5""#],      "alice", SAME_PAYMENT                  => 201 again 1;
    STRIPE,    ["8e03978e-40d5"],           "alice", PAYMENT                       => 201 again 1;
    REUSE,     [r#""8e03978e-40d5""#],      "alice", OTHER_PAYMENT                 => 422 first 1;
    REUSE,     [r#""8e03978e-40d5""#],      "alice", r#"{"to":"shop","cents":1200,"note":""}"# => 422 first 1;
    RETRY,     [r#""8e03978e-40d5""#],      "alice", PAYMENT                       => 201 again 1;
    FIRST,     [r#""8E03978E-40D5""#],      "alice", PAYMENT                       => 201 first 2;
    COMPOSITE, [r#""8e03978e-40d5""#],      "bob",   OTHER_PAYMENT                 => 201 first 3;
    COMPOSITE, [r#""8e03978e-40d5""#],      "bob",   OTHER_PAYMENT                 => 201 again 3;
    COMPOSITE, [r#""8e03978e-40d5""#],      "eve",   PAYMENT                       => 401 first 3;
    MISSING,   [],                          "alice", PAYMENT                       => 400 first 3;
    MISSING,   [""],                        "alice", PAYMENT                       => 400 first 3;
    MISSING,   [r#""""#],                   "alice", PAYMENT                       => 400 first 3;
    MISSING,   [r#""  ""#],                 "alice", PAYMENT                       => 400 first 3;
    SYNTAX,    [r#""a""#, r#""a""#],        "alice", PAYMENT                       => 400 first 3;
    SYNTAX,    [r#""a"#],                   "alice", PAYMENT                       => 400 first 3;
    SYNTAX,    [r#""a";b=1"#],              "alice", PAYMENT                       => 400 first 3;
    SYNTAX,    [r#""\a""#],                 "alice", PAYMENT                       => 400 first 3;
    SYNTAX,    ["\"\u{e4}\""],              "alice", PAYMENT                       => 400 first 3;
    SYNTAX,    [r#""a \"b\" c""#],          "alice", PAYMENT                       => 201 first 4;
    SYNTAX,    [r#""a \"b\" c""#],          "alice", PAYMENT                       => 201 again 4;
    FORMAT,    [LONG],                      "alice", PAYMENT                       => 400 first 4;
    STRIPE,    [LONG.split_at(255).0],      "alice", PAYMENT                       => 201 first 5;
    STRIPE,    [LONG.split_at(255).0],      "alice", PAYMENT                       => 201 again 5;
    FIRST,     [LONG.split_at(254).0],      "alice", PAYMENT                       => 201 first 6;
    CORRECTED, [r#""mended""#],             "alice", r#"{"to": "shop"}"#           => 400 first 6;
    CORRECTED, [r#""mended""#],             "alice", r#"{"to": "shop", "cents": 0}"# => 400 first 6;
    CORRECTED, [r#""mended""#],             "alice", PAYMENT                       => 201 first 7;
    FIRST,     [r#""declined""#],           "alice", TOO_MUCH                      => 402 first 7;
    RETRY,     [r#""declined""#],           "alice", TOO_MUCH                      => 402 again 7;
    REUSE,     [r#""declined""#],           "alice", PAYMENT                       => 422 first 7;
};

/// 256 characters.
const LONG: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\
    0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\
    0123456789abcdef0123456789abcdef0123456789abcdef";

#[tokio::test]
async fn the_drafts_rules_hold() {
    let mut world = World::new(&[]).await;
    let policy = reqwest::get(format!("{}{POLICY_PATH}", world.server.url)).await.expect("an answer");
    let policy = policy.text().await.expect("text");
    assert!(policy.contains("24 hours"), "Validity and Expiry: the policy is published");
    let mut first_answers: Vec<(&str, Vec<&str>, String)> = Vec::new();
    for (index, rule) in RULES.iter().enumerate() {
        let Rule { says, keys, account, payment, status, replayed, payments } = rule;
        let rule = format!("rule {}, {says}: {keys:?} of {account} with {payment}", index + 1);
        let answer = answered(world.server.payer(account, PATIENT).send(keys, payment).await);
        assert_eq!(answer.status, *status, "{rule}: {answer:?}");
        assert_eq!(answer.replayed.as_deref(), replayed.then_some("true"), "{rule}");
        assert_eq!(world.payments().await, *payments, "{rule}");
        if *replayed {
            // Bare and quoted are one key.
            let of = |(account_, keys_, _): &&(&str, Vec<&str>, String)| {
                account_ == account && keys_[0].trim_matches('"') == keys[0].trim_matches('"')
            };
            let (.., first) = first_answers.iter().find(of).expect("a first answer");
            assert_eq!(&answer.body, first, "{rule}");
        } else if matches!(status, 201 | 402) {
            first_answers.push((account, keys.to_vec(), answer.body));
        } else if *status != 401 && !answer.body.contains("about:blank") {
            assert_problem_of_key(&answer, &policy, &rule);
        }
    }
    // What was declined stays declined, though there would be money by now.
    sqlx::query("UPDATE account SET cents = 999999999").execute(&mut world.database).await.expect("topped up");
    let declined = answered(world.server.payer("alice", PATIENT).send(&[r#""declined""#], TOO_MUCH).await);
    assert_eq!((declined.status, declined.replayed.as_deref()), (402, Some("true")));
    assert_eq!(world.payments().await, 7);
}

#[tokio::test]
async fn a_client_that_gives_up_waiting_is_told_409_and_then_the_first_answer() {
    let mut world = World::new(&["--handler-takes", "1500"]).await;
    let (attempts, answer) = world.server.payer("alice", Duration::from_millis(200)).pay("key", PAYMENT).await.unwrap();
    let count = |status: u16| {
        attempts
            .iter()
            .filter(|attempt| matches!(attempt, Attempt::Answered(answer) if answer.status == status))
            .count()
    };
    assert_eq!(attempts[0], Attempt::Unanswered);
    assert!(count(409) > 0, "{attempts:?}");
    assert_eq!((answer.status, answer.replayed.as_deref()), (201, Some("true")), "{attempts:?}");
    assert_eq!(world.payments().await, 1);
    // Byte for byte what the first request would have got.
    let stored: String =
        sqlx::query_scalar("SELECT value FROM processed_messages").fetch_one(&mut world.database).await.unwrap();
    let stored: Value = serde_json::from_str(&stored).unwrap();
    assert_eq!(stored["body"], answer.body);
}

#[tokio::test]
async fn while_the_first_is_processed_its_key_is_a_conflict_and_other_keys_are_not() {
    let mut world = World::new(&["--answer-takes", "1500"]).await;
    let (alice, bob) = (world.server.payer("alice", PATIENT), world.server.payer("bob", PATIENT));
    let first = tokio::spawn({
        let alice = alice.clone();
        async move { alice.send(&["key"], PAYMENT).await }
    });
    while world.payments().await == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let policy = reqwest::get(format!("{}{POLICY_PATH}", world.server.url)).await.unwrap().text().await.unwrap();
    for payment in [PAYMENT, OTHER_PAYMENT] {
        let conflict = answered(alice.send(&["key"], payment).await);
        assert_eq!((conflict.status, &conflict.replayed), (409, &None), "{payment}");
        assert_problem_of_key(&conflict, &policy, "Error Scenarios: 409 for a concurrent request");
    }
    assert!(!first.is_finished());
    let (other_key, other_account) = tokio::join!(alice.send(&["other"], PAYMENT), bob.send(&["key"], PAYMENT));
    for answer in [other_key, other_account, first.await.unwrap()].map(answered) {
        assert_eq!((answer.status, answer.replayed), (201, None));
    }
    assert_eq!(answered(alice.send(&["key"], OTHER_PAYMENT).await).status, 422);
    assert_eq!(world.payments().await, 3);
}

#[tokio::test]
async fn of_many_requests_at_once_one_pays_and_the_others_get_its_answer_or_409() {
    let mut world = World::new(&[]).await;
    let mut requests = JoinSet::new();
    for _ in 0..40 {
        let payer = world.server.payer("alice", PATIENT);
        requests.spawn(async move { answered(payer.send(&["key"], PAYMENT).await) });
    }
    let answers = requests.join_all().await;
    let of = |status: u16, replayed: bool| {
        let matches = answers.iter().filter(|answer| answer.status == status && answer.replayed.is_some() == replayed);
        matches.count()
    };
    assert_eq!((of(201, false), of(201, true) + of(409, false)), (1, 39), "{answers:?}");
    assert_eq!(world.payments().await, 1);
}

/// The moment that idempotency keys are for: paid, and nobody has been told.
#[tokio::test]
async fn a_server_killed_between_payment_and_answer_gives_the_first_answer_after_its_restart() {
    let mut world = World::new(&["--answer-takes", "60000"]).await;
    let payer = world.server.payer("alice", PATIENT);
    let first = tokio::spawn(async move { payer.send(&["key"], PAYMENT).await });
    while world.payments().await == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.server.kill();
    assert_eq!(first.await.unwrap(), Attempt::Unanswered);
    world.server = world.another(&[]);
    let (attempts, answer) = world.server.payer("alice", PATIENT).pay("key", PAYMENT).await.unwrap();
    assert_eq!((answer.status, answer.replayed.as_deref()), (201, Some("true")), "{attempts:?}");
    let id = world.number("SELECT id FROM payment").await;
    assert_eq!(serde_json::from_str::<Value>(&answer.body).unwrap()["id"], id);
    assert_eq!(world.payments().await, 1);
}

#[tokio::test]
async fn a_server_killed_inside_the_handler_has_paid_nothing_and_the_retry_pays() {
    let mut world = World::new(&["--handler-takes", "60000"]).await;
    let payer = world.server.payer("alice", PATIENT);
    let first = tokio::spawn(async move { payer.send(&["key"], PAYMENT).await });
    wait_for_a_writer(&world).await;
    world.server.kill();
    assert_eq!(first.await.unwrap(), Attempt::Unanswered);
    world.server = world.another(&[]);
    assert_eq!(world.payments().await, 0);
    let (_, answer) = world.server.payer("alice", PATIENT).pay("key", PAYMENT).await.unwrap();
    assert_eq!((answer.status, answer.replayed), (201, None));
    assert_eq!(
        (world.payments().await, world.number("SELECT cents FROM account WHERE id = 'alice'").await),
        (1, 98_800)
    );
}

/// Until a transaction of the server's holds the one write lock.
async fn wait_for_a_writer(world: &World) {
    let options = SqliteConnectOptions::new().filename(world.folder.path().join("payments.db"));
    let mut connection = options.busy_timeout(Duration::ZERO).connect().await.unwrap();
    let start = Instant::now();
    while let Ok(transaction) = connection.begin_with("BEGIN IMMEDIATE").await {
        transaction.rollback().await.unwrap();
        assert!(start.elapsed() < PATIENT, "nobody writes");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What the example says about SQLite, where nobody but the database knows of the other server.
#[tokio::test]
async fn two_servers_on_one_database_pay_once() {
    let mut world = World::new(&["--handler-takes", "1000"]).await;
    let other = world.another(&[]);
    let payer = world.server.payer("alice", PATIENT);
    let first = tokio::spawn(async move { payer.send(&["key"], PAYMENT).await });
    wait_for_a_writer(&world).await;
    let second = answered(other.payer("alice", PATIENT).send(&["key"], PAYMENT).await);
    let first = answered(first.await.unwrap());
    assert_eq!((first.status, first.replayed), (201, None));
    assert_eq!((second.status, second.replayed.as_deref(), second.body), (201, Some("true"), first.body));
    assert_eq!(world.payments().await, 1);
}

#[tokio::test]
async fn a_database_that_stays_busy_is_503_and_the_retry_pays() {
    let mut world = World::new(&[]).await;
    let writer = world.database.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let payer = world.server.payer("alice", PATIENT);
    let busy = answered(payer.send(&["key"], PAYMENT).await);
    assert_eq!((busy.status, busy.content_type.as_str()), (503, "application/problem+json"), "{busy:?}");
    writer.rollback().await.unwrap();
    let answer = answered(payer.send(&["key"], PAYMENT).await);
    assert_eq!((answer.status, answer.replayed), (201, None));
    assert_eq!(world.payments().await, 1);
}
