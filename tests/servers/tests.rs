//! What the tests' own servers and proxy promise.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use servers::{Cut, Database, Kind, Proxy};
use sqlx::{Connection as _, Executor};

/// A process that has started servers, and what it has printed.
struct Started {
    process: Child,
    variables: Vec<(String, String)>,
}

impl Started {
    fn new() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_start-servers"));
        for name in ["POSTGRES", "POSTGRES_LOG", "MYSQL", "MYSQL_LOG"] {
            command.env_remove(format!("IDEMPOTENT_TEST_{name}"));
        }
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start-servers runs");
        let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let lines: Vec<_> = lines.map(|line| line.expect("text")).take_while(|line| line != "ready").collect();
        let variables = lines.iter().filter_map(|line| line.split_once('='));
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { process, variables }
    }

    fn get(&self, name: &str) -> &str {
        let found = self.variables.iter().find(|(variable, _)| variable == name);
        found.map_or_else(|| panic!("no {name} in {:?}", self.variables), |(_, value)| value.as_str())
    }

    fn folders(&self) -> [PathBuf; 2] {
        ["IDEMPOTENT_TEST_POSTGRES_LOG", "IDEMPOTENT_TEST_MYSQL_LOG"]
            .map(|name| Path::new(self.get(name)).parent().expect("a folder").to_owned())
    }
}

#[tokio::test]
async fn servers_end_with_the_process_that_started_them() {
    let mut started = Started::new();
    let folders = started.folders();
    let (postgres, mysql) = (started.get("IDEMPOTENT_TEST_POSTGRES"), started.get("IDEMPOTENT_TEST_MYSQL"));
    sqlx::PgConnection::connect(postgres).await.expect("PostgreSQL answers");
    sqlx::MySqlConnection::connect(mysql).await.expect("MariaDB answers");
    assert!(folders.iter().all(|folder| folder.join("log").is_file()), "{folders:?}");

    drop(started.process.stdin.take());
    let status = started.process.wait().expect("it ends");
    assert!(status.success());
    assert!(!folders.iter().any(|folder| folder.exists()), "{folders:?}");
}

#[tokio::test]
async fn servers_end_when_the_process_that_started_them_is_killed() {
    let mut started = Started::new();
    let folders = started.folders();
    started.process.kill().expect("it can be killed");
    started.process.wait().expect("it ends");
    let start = Instant::now();
    while folders.iter().any(|folder| folder.exists()) {
        assert!(start.elapsed() < Duration::from_secs(20), "{folders:?} are still there");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let postgres = sqlx::PgConnection::connect(started.get("IDEMPOTENT_TEST_POSTGRES")).await;
    let mariadb = sqlx::MySqlConnection::connect(started.get("IDEMPOTENT_TEST_MYSQL")).await;
    assert!(postgres.is_err() && mariadb.is_err());
}

#[tokio::test]
async fn a_log_of_postgres_holds_the_errors_of_its_own_database() {
    let [mine, other] = [Kind::Postgres.fresh_database().await, Kind::Postgres.fresh_database().await];
    let mut connection = sqlx::PgConnection::connect(mine.url()).await.expect("a connection");
    connection.execute("SELECT mistake\n FROM nowhere").await.expect_err("a mistake");
    connection.close().await.expect("an orderly end");
    if let (Some(mine), Some(other)) = (mine.log(), other.log()) {
        assert!(mine.contains("ERROR") && mine.contains("FROM nowhere"), "{mine}");
        assert!(!other.contains("ERROR"), "{other}");
    }
}

#[tokio::test]
async fn the_default_collation_of_mariadb_is_a_bad_one_unless_chosen() {
    let bad = servers::mariadb().await.fresh_database().await;
    let good = servers::mariadb().await.fresh_database_with_collation("utf8mb4_bin").await;
    for (database, same) in [(&bad, true), (&good, false)] {
        let mut connection = sqlx::MySqlConnection::connect(database.url()).await.expect("a connection");
        connection.execute("CREATE TABLE t (k VARCHAR(9)); INSERT INTO t VALUES ('K')").await.expect("a table");
        let found = sqlx::query("SELECT k FROM t WHERE k = 'k'").fetch_optional(&mut connection).await;
        assert_eq!(found.expect("an answer").is_some(), same, "{database:?}");
    }
}

async fn a_dropped_database_is_gone_although_a_transaction_in_it_was_open<DB: sqlx::Database>(kind: Kind)
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    let database = kind.fresh_database().await;
    let mut connection = DB::Connection::connect(database.url()).await.expect("a connection");
    connection.execute("CREATE TABLE t (k INTEGER)").await.expect("a table");
    let mut transaction = connection.begin().await.expect("a transaction");
    transaction.as_mut().execute("INSERT INTO t VALUES (1)").await.expect("a row");
    let url = database.url().to_owned();
    let start = Instant::now();
    drop(database);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(transaction.as_mut().execute("INSERT INTO t VALUES (1)").await.is_err());
    assert!(DB::Connection::connect(&url).await.is_err());
}

/// A connection to a fresh database through a proxy, with a table and nothing counted.
async fn proxied<DB: sqlx::Database>(kind: Kind) -> (Database, Proxy, DB::Connection)
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    let database = kind.fresh_database().await;
    let proxy = Proxy::start(database.url()).await;
    let mut connection = DB::Connection::connect(proxy.url()).await.expect("a connection through the proxy");
    connection.execute("CREATE TABLE t (k INTEGER)").await.expect("a table");
    proxy.reset();
    (database, proxy, connection)
}

async fn requests_are_counted<DB: sqlx::Database>(kind: Kind)
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
    DB::Arguments: sqlx::IntoArguments<DB>,
{
    let (_database, proxy, mut connection) = proxied::<DB>(kind).await;
    connection.execute("SELECT 1").await.expect("an answer");
    assert_eq!((proxy.round_trips(), proxy.log()), (1, vec!["SELECT 1".to_owned()]));

    proxy.reset();
    connection.ping().await.expect("an answer");
    for _ in 0..2 {
        sqlx::query("SELECT 2").execute(&mut connection).await.expect("an answer");
    }
    assert_eq!(proxy.log(), ["ping", "prepare SELECT 2", "execute SELECT 2", "execute SELECT 2"]);
    assert_eq!(proxy.round_trips(), 3);
}

async fn only_what_is_waited_for_is_a_round_trip_of_a_future<DB: sqlx::Database>(kind: Kind)
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    let (_database, proxy, mut connection) = proxied::<DB>(kind).await;
    let (result, waits) = proxy
        .round_trips_of(async {
            let mut transaction = connection.begin().await?;
            transaction.as_mut().execute("INSERT INTO t VALUES (1)").await?;
            transaction.commit().await
        })
        .await;
    result.expect("a commit");
    assert_eq!(waits, 3, "{:?}", proxy.log());

    // A reply of several packets is one.
    let rows = "WITH RECURSIVE n (k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n WHERE k < 1000)
                SELECT a.k, REPEAT('x', 1000) FROM n AS a";
    let (result, waits) = proxy.round_trips_of(connection.fetch_all(rows)).await;
    assert_eq!((result.expect("rows").len(), waits), (1000, 1), "{:?}", proxy.log());

    // The rollback is sent with the next request, and nobody waits for its reply.
    let (result, waits) = proxy.round_trips_of(async { connection.begin().await.map(drop) }).await;
    result.expect("a transaction");
    assert_eq!(waits, 1, "{:?}", proxy.log());
}

async fn a_cut_before_a_request_keeps_it_from_the_server<DB: sqlx::Database>(kind: Kind)
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    let (database, proxy, mut connection) = proxied::<DB>(kind).await;
    proxy.cut(Cut::before(2));
    connection.execute("INSERT INTO t VALUES (1)").await.expect("it is the first");
    assert!(proxy.is_cut_pending());
    assert!(connection.execute("INSERT INTO t VALUES (2)").await.is_err());
    assert!(!proxy.is_cut_pending());
    assert_eq!(rows::<DB>(&database).await, 1);
}

async fn a_cut_after_a_commit_loses_its_reply_alone<DB: sqlx::Database>(kind: Kind)
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    let (database, proxy, mut connection) = proxied::<DB>(kind).await;
    proxy.cut(Cut::after("COMMIT"));
    let mut transaction = connection.begin().await.expect("a transaction");
    transaction.as_mut().execute("INSERT INTO t VALUES (1)").await.expect("a row");
    let error = transaction.commit().await.expect_err("the reply is lost");
    assert!(matches!(error, sqlx::Error::Io(_)), "{error:?}");
    assert_eq!(rows::<DB>(&database).await, 1);

    // One connection is gone; the proxy is not.
    DB::Connection::connect(proxy.url()).await.expect("another connection");
}

async fn rows<DB: sqlx::Database>(database: &Database) -> usize
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    let mut connection = DB::Connection::connect(database.url()).await.expect("a connection");
    connection.fetch_all("SELECT k FROM t").await.expect("rows").len()
}

macro_rules! on_both_servers {
    ($($test:ident),*) => {
        on_both_servers!(postgres(sqlx::Postgres, Kind::Postgres): $($test),*);
        on_both_servers!(mariadb(sqlx::MySql, Kind::Mariadb): $($test),*);
    };
    ($module:ident($database:ty, $kind:expr): $($test:ident),*) => {
        mod $module {
            use super::*;
            $(#[tokio::test]
            async fn $test() {
                super::$test::<$database>($kind).await;
            })*
        }
    };
}

on_both_servers!(
    a_dropped_database_is_gone_although_a_transaction_in_it_was_open,
    requests_are_counted,
    only_what_is_waited_for_is_a_round_trip_of_a_future,
    a_cut_before_a_request_keeps_it_from_the_server,
    a_cut_after_a_commit_loses_its_reply_alone
);
