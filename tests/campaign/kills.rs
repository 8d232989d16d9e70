//! Consumers that are killed at random moments, and servers too: no message is lost, none has two effects (G1, G3, C7, C8).
//!
//! Three processes consume one stream with duplicates from one database. A supervisor kills them with SIGKILL, delivers again
//! what they have not acknowledged, and kills the server. In the end plain SQL compares effects with messages.
//! `IDEMPOTENT_TEST_LONG=1` kills a thousand times.

mod supervisor;

use std::time::{Duration, Instant};

use servers::{Database, Kind, Server};

use supervisor::{Figures, Message, Supervisor};

fn is_long() -> bool {
    std::env::var_os("IDEMPOTENT_TEST_LONG").is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_consumers_of_one_postgres_lose_and_double_nothing() {
    campaign(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_consumers_of_one_mariadb_lose_and_double_nothing() {
    campaign(Kind::Mariadb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_consumers_of_one_sqlite_file_lose_and_double_nothing() {
    campaign(Kind::Sqlite).await;
}

async fn campaign(kind: Kind) {
    let started = Instant::now();
    let (kills, restarts) = if is_long() { (1_000, 20) } else { (50, 2) };
    let mut server = match kind {
        Kind::Sqlite => None,
        _ => Some(Server::start_durable(kind).await.expect("a server")),
    };
    let database = match &server {
        Some(server) => server.fresh_database().await,
        None => kind.fresh_database().await,
    };
    migrate(&database).await;
    let zeros: Vec<_> = (0..8).map(|account| format!("({account}, 0)")).collect();
    let tables = format!(
        "CREATE TABLE effects (id VARCHAR(40) NOT NULL); CREATE TABLE accounts (id INTEGER PRIMARY KEY, cents BIGINT NOT NULL); \
         CREATE TABLE messages (id VARCHAR(40) NOT NULL PRIMARY KEY, account INTEGER NOT NULL, cents BIGINT NOT NULL); \
         INSERT INTO accounts VALUES {}",
        zeros.join(", ")
    );
    database.ask(&tables).await.expect("the tables");

    let supervisor = Supervisor::start(database.url(), kills);
    let mut servers_killed = 0;
    while !supervisor.has_ended() {
        if let Some(server) = &mut server
            && servers_killed < restarts
            && supervisor.kills() >= (servers_killed + 1) * kills / (restarts + 1)
        {
            server.crash().await;
            servers_killed += 1;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let figures = supervisor.end();
    check(&database, &figures).await;
    println!(
        "{}: {} kills, {servers_killed} kills of the server, {} messages, {} deliveries, {} of them unacknowledged at a kill, {} \
         refused by a failing handler or server, lost 0, doubled 0, {} s",
        kind.name(),
        figures.kills,
        figures.messages.len(),
        figures.deliveries,
        figures.interrupted,
        figures.refused,
        started.elapsed().as_secs()
    );
    assert_eq!((figures.kills, servers_killed), (kills, if server.is_some() { restarts } else { 0 }));
    assert!(figures.interrupted > kills, "kills hit messages that were on their way");
}

async fn migrate(database: &Database) {
    let url = database.url();
    match database.kind() {
        Kind::Sqlite => idempotent_runtime::migrate(&sqlx::SqlitePool::connect(url).await.expect("a pool")).await,
        Kind::Postgres => idempotent_runtime::migrate(&sqlx::PgPool::connect(url).await.expect("a pool")).await,
        Kind::Mariadb => idempotent_runtime::migrate(&sqlx::MySqlPool::connect(url).await.expect("a pool")).await,
    }
    .expect("the claim table");
}

/// Plain SQL, which knows nothing of claims.
async fn check(database: &Database, figures: &Figures) {
    for some in figures.messages.chunks(500) {
        let row = |message: &Message| format!("('{}', {}, {})", message.id, message.cents % 8, message.cents);
        let rows: Vec<_> = some.iter().map(row).collect();
        let insert = format!("INSERT INTO messages VALUES {}", rows.join(", "));
        database.ask(&insert).await.expect("the messages");
    }
    let found = async |sql: &str| database.ask(sql).await.expect(sql);
    let lost = found("SELECT id FROM messages WHERE id NOT IN (SELECT id FROM effects)").await;
    let doubled = found("SELECT id FROM effects GROUP BY id HAVING count(*) > 1").await;
    let strange = found("SELECT id FROM effects WHERE id NOT IN (SELECT id FROM messages)").await;
    assert!(
        lost.is_empty() && doubled.is_empty() && strange.is_empty(),
        "{}: lost {lost:?}, doubled {doubled:?}, of no message {strange:?}",
        database.kind().name()
    );
    let unequal = "SELECT CAST(accounts.id AS CHAR(9)) FROM accounts \
                   LEFT JOIN messages ON messages.account = accounts.id \
                   GROUP BY accounts.id, accounts.cents HAVING accounts.cents <> COALESCE(SUM(messages.cents), 0)";
    let unequal = found(unequal).await;
    assert!(unequal.is_empty(), "{}: accounts {unequal:?} hold another sum", database.kind().name());
}
