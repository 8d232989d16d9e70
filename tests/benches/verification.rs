//! Ways to prove at the end that the transaction is still the claim's own, measured against each other and against the
//! unverified lines that people write, interleaved on one connection.
//!
//! `cargo bench -p tests --bench verification`. Compare the columns of one run; the times are this machine's.

use std::time::{Duration, Instant};

use servers::Kind;
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, Row as _, SqliteConnection};

const ROUNDS: u32 = 20;
const MESSAGES: u32 = 100;

const TABLES: &str = "
CREATE TABLE claims (consumer VARCHAR(128) NOT NULL, id VARCHAR(255) NOT NULL, PRIMARY KEY (consumer, id));
CREATE TABLE effects (id INTEGER NOT NULL);";

/// One way to process a message, on one kind of connection.
type Way<C> = (&'static str, for<'c> fn(&'c mut C, String) -> futures::Processing<'c>);

mod futures {
    pub(crate) type Processing<'c> = std::pin::Pin<Box<dyn Future<Output = ()> + 'c>>;
}

async fn compare<C>(kind: Kind, connection: &mut C, ways: &[Way<C>]) {
    let mut times = vec![Duration::ZERO; ways.len()];
    for round in 0..=ROUNDS {
        for (way, (name, process)) in ways.iter().enumerate() {
            let start = Instant::now();
            for message in 0..MESSAGES {
                process(connection, format!("{name} {round} {message}")).await;
            }
            // The first round prepares statements and fills caches.
            if round > 0 {
                times[way] += start.elapsed();
            }
        }
    }
    println!("{}:", kind.name());
    for ((name, _), time) in ways.iter().zip(&times) {
        let ratio = time.as_secs_f64() / times[0].as_secs_f64();
        println!(
            "  {:5.0} µs a message, {ratio:.2} of by hand: {name}",
            time.as_secs_f64() * 1e6 / f64::from(ROUNDS * MESSAGES)
        );
    }
}

const INSERT_CLAIM_POSTGRES: &str =
    "INSERT INTO claims VALUES ('c', $1) ON CONFLICT DO NOTHING RETURNING txid_current()";

async fn postgres_body(connection: &mut PgConnection, id: &str) -> i64 {
    let row = sqlx::query(INSERT_CLAIM_POSTGRES).bind(id).fetch_one(&mut *connection).await.expect("claim");
    sqlx::query("INSERT INTO effects VALUES (1)").execute(connection).await.expect("effect");
    row.get(0)
}

const POSTGRES: [Way<PgConnection>; 5] = [
    ("by hand, unverified", |connection, id| {
        Box::pin(async move {
            let mut tx = connection.begin().await.expect("begin");
            postgres_body(&mut tx, &id).await;
            tx.commit().await.expect("commit");
        })
    }),
    ("check by id; COMMIT; BEGIN in one request", |connection, id| {
        Box::pin(async move {
            let mut tx = connection.begin().await.expect("begin");
            let txid = postgres_body(&mut tx, &id).await;
            let end = format!(
                "SELECT CASE txid_current_if_assigned() WHEN {txid} THEN 1 ELSE concat('x')::int END; COMMIT; BEGIN"
            );
            tx.execute(AssertSqlSafe(end)).await.expect("end");
        })
    }),
    ("cursor with BEGIN; CLOSE; COMMIT; BEGIN in one request", |connection, id| {
        Box::pin(async move {
            let begin = "BEGIN; DECLARE claim NO SCROLL CURSOR FOR SELECT 1";
            let mut tx = connection.begin_with(begin).await.expect("begin");
            postgres_body(&mut tx, &id).await;
            tx.execute("CLOSE claim; COMMIT; BEGIN").await.expect("end");
        })
    }),
    ("savepoint with BEGIN; RELEASE; COMMIT; BEGIN in one request", |connection, id| {
        Box::pin(async move {
            let mut tx = connection.begin_with("BEGIN; SAVEPOINT claim").await.expect("begin");
            postgres_body(&mut tx, &id).await;
            tx.execute("RELEASE SAVEPOINT claim; COMMIT; BEGIN").await.expect("end");
        })
    }),
    ("check by id in a request of its own, then COMMIT", |connection, id| {
        Box::pin(async move {
            let mut tx = connection.begin().await.expect("begin");
            let txid = postgres_body(&mut tx, &id).await;
            let alive: bool = sqlx::query_scalar("SELECT txid_current_if_assigned() = $1")
                .bind(txid)
                .fetch_one(&mut *tx)
                .await
                .expect("check");
            assert!(alive);
            tx.commit().await.expect("commit");
        })
    }),
];

async fn mysql_effect(connection: &mut MySqlConnection) {
    sqlx::query("INSERT INTO effects VALUES (1)").execute(connection).await.expect("effect");
}

const MARIADB: [Way<MySqlConnection>; 4] = [
    ("by hand, unverified", |connection, id| {
        Box::pin(async move {
            let mut tx = connection.begin().await.expect("begin");
            sqlx::query("INSERT INTO claims VALUES ('c', ?)").bind(id).execute(&mut *tx).await.expect("claim");
            mysql_effect(&mut tx).await;
            tx.commit().await.expect("commit");
        })
    }),
    (
        "begin, savepoint and claim in one request; RELEASE and COMMIT in one, autocommit off between",
        |connection, id| {
            Box::pin(async move {
                let begin = format!("SET autocommit = 0; SAVEPOINT claim; INSERT INTO claims VALUES ('c', '{id}')");
                let mut tx = connection.begin_with(AssertSqlSafe(begin)).await.expect("begin");
                mysql_effect(&mut tx).await;
                tx.execute("RELEASE SAVEPOINT claim; COMMIT; SET autocommit = 1").await.expect("end");
            })
        },
    ),
    ("the same, the claim prepared in a request of its own", |connection, id| {
        Box::pin(async move {
            let mut tx =
                connection.begin_with("SET autocommit = 0; START TRANSACTION; SAVEPOINT claim").await.expect("begin");
            sqlx::query("INSERT INTO claims VALUES ('c', ?)").bind(id).execute(&mut *tx).await.expect("claim");
            mysql_effect(&mut tx).await;
            tx.execute("RELEASE SAVEPOINT claim; COMMIT; SET autocommit = 1").await.expect("end");
        })
    }),
    ("RELEASE in a request of its own, then COMMIT", |connection, id| {
        Box::pin(async move {
            let begin = format!("START TRANSACTION; SAVEPOINT claim; INSERT INTO claims VALUES ('c', '{id}')");
            let mut tx = connection.begin_with(AssertSqlSafe(begin)).await.expect("begin");
            mysql_effect(&mut tx).await;
            tx.execute("RELEASE SAVEPOINT claim").await.expect("check");
            tx.commit().await.expect("commit");
        })
    }),
];

async fn sqlite_body(connection: &mut SqliteConnection, id: &str) {
    sqlx::query("INSERT INTO claims VALUES ('c', ?) ON CONFLICT DO NOTHING")
        .bind(id)
        .execute(&mut *connection)
        .await
        .expect("claim");
    sqlx::query("INSERT INTO effects VALUES (1)").execute(connection).await.expect("effect");
}

const SQLITE: [Way<SqliteConnection>; 4] = [
    ("by hand, unverified", |connection, id| {
        Box::pin(async move {
            let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.expect("begin");
            sqlite_body(&mut tx, &id).await;
            tx.commit().await.expect("commit");
        })
    }),
    ("hooks, found on their connection", |connection, id| {
        Box::pin(async move {
            drop(connection.lock_handle().await.expect("handle"));
            let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.expect("begin");
            sqlite_body(&mut tx, &id).await;
            tx.commit().await.expect("commit");
        })
    }),
    ("hooks, set for each message", |connection, id| {
        Box::pin(async move {
            let mut handle = connection.lock_handle().await.expect("handle");
            handle.set_commit_hook(|| true);
            handle.set_rollback_hook(|| {});
            drop(handle);
            let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.expect("begin");
            sqlite_body(&mut tx, &id).await;
            tx.commit().await.expect("commit");
        })
    }),
    ("savepoint with BEGIN; RELEASE before COMMIT", |connection, id| {
        Box::pin(async move {
            let mut tx = connection.begin_with("BEGIN IMMEDIATE; SAVEPOINT claim").await.expect("begin");
            sqlite_body(&mut tx, &id).await;
            tx.execute("RELEASE claim").await.expect("check");
            tx.commit().await.expect("commit");
        })
    }),
];

#[tokio::main]
async fn main() {
    let fresh = Kind::Postgres.fresh_database().await;
    let mut connection = PgConnection::connect(fresh.url()).await.expect("PostgreSQL");
    connection.execute(TABLES).await.expect("tables");
    compare(Kind::Postgres, &mut connection, &POSTGRES).await;

    let fresh = Kind::Mariadb.fresh_database().await;
    let mut connection = MySqlConnection::connect(fresh.url()).await.expect("MariaDB");
    connection.execute(TABLES).await.expect("tables");
    compare(Kind::Mariadb, &mut connection, &MARIADB).await;

    let mut connection = SqliteConnection::connect("sqlite::memory:").await.expect("SQLite");
    connection.execute(TABLES).await.expect("tables");
    compare(Kind::Sqlite, &mut connection, &SQLITE).await;
}
