//! The suite on MariaDB, or on the MySQL server that the environment names.

mod adopted;
mod adopting;
mod batched;
mod borrowed;
mod checked;
mod checked_batches;
mod checked_commits;
mod checked_limits;
mod concurrent;
mod contended;
mod cuts;
mod dated;
mod dropped;
mod faults;
mod handlers;
mod harness;
mod histories;
mod hostile;
mod janitor;
mod joined;
mod migrated;
mod once;
#[path = "mariadb_only.rs"]
mod only;
mod ordered;
mod pressed;
mod processes;
mod purged;
mod replayed;
mod seen;
mod verified;
mod wire;

use sqlx::{AssertSqlSafe, Executor as _, Pool};

pub(crate) use servers::Database as Fresh;
pub(crate) use sqlx::{MySql as Db, MySqlConnection as Connection, MySqlTransaction as Tx};

/// A statement's error undoes the statement alone.
const ERROR_ABORTS: bool = false;
/// Autocommit is off while the body runs.
const AFTER_BODYS_ROLLBACK_STAYS: bool = false;
const BODYS_COMMIT_STAYS: bool = true;
const AFTER_BODYS_COMMIT_STAYS: bool = false;
const DDL_COMMITS: bool = true;
/// sqlx 0.9.0, if a statement is dropped while it is being prepared.
const LOSES_ITS_PLACE_WHEN_DROPPED: bool = true;
/// Begins a transaction that will write.
const BEGIN_TO_WRITE: &str = "BEGIN";
/// What lets a reader and a writer work at the same time.
const READERS_BESIDE_WRITERS: Option<&str> = None;
const ONE_WRITER: bool = false;
const KEY: &str = "`key`";
/// Some time in the future.
const SOON: &str = "UTC_TIMESTAMP(6) + INTERVAL 1 HOUR";
/// Deletes every claim that may go, without a margin.
const PURGE_EXPIRED: &str = "DELETE FROM processed_messages WHERE expires_at < UTC_TIMESTAMP(6)";
/// The type to cast a sum to.
const INTEGER: &str = "SIGNED";
const ISOLATION_LEVELS: &[&str] = &["read uncommitted", "read committed", "repeatable read", "serializable"];
const SLEEP: &str = "SELECT SLEEP(0.2)";

/// Replies that a handler of one statement waits for, its statements prepared before. A joined one also waits for what
/// the handler before it has left queued.
const ROUND_TRIPS: RoundTrips = RoundTrips { fresh: 3, duplicate: 1, joined: 5, joined_duplicate: 3, by_hand: 4 };

/// The same for a batch.
const BATCH_ROUND_TRIPS: usize = 4;

#[derive(Debug, Default, PartialEq)]
struct RoundTrips {
    fresh: usize,
    duplicate: usize,
    joined: usize,
    joined_duplicate: usize,
    by_hand: usize,
}

/// Whether a statement of the test's own was in another's way.
fn is_busy<T>(result: &sqlx::Result<T>) -> bool {
    matches!(result, Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("40001"))
}

/// How long this connection waits for a lock.
async fn wait_setting(connection: &mut Connection) -> String {
    let setting = "SELECT CAST(@@innodb_lock_wait_timeout AS CHAR)";
    sqlx::query_scalar(setting).fetch_one(connection).await.expect("the setting")
}

async fn set_own_wait(connection: &mut Connection) {
    connection.execute("SET innodb_lock_wait_timeout = 77").await.expect("set");
}

/// The isolation of the transaction that is open, or of the next one.
async fn isolation(connection: &mut Connection) -> String {
    // InnoDB renews this table every 100 ms.
    tokio::time::sleep(std::time::Duration::from_millis(150)).await;
    let open =
        "SELECT trx_isolation_level FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = connection_id()";
    let open: Option<String> = sqlx::query_scalar(open).fetch_optional(&mut *connection).await.expect("transactions");
    let level = match open {
        Some(level) => level,
        None => sqlx::query_scalar("SELECT @@tx_isolation").fetch_one(connection).await.expect("the setting"),
    };
    level.to_lowercase().replace('-', " ")
}

async fn fresh() -> Fresh {
    servers::Kind::Mariadb.fresh_database().await
}

fn url(fresh: &Fresh) -> String {
    fresh.url().to_owned()
}

async fn pool_with_isolation(fresh: &Fresh, level: &'static str) -> Pool<Db> {
    let options = sqlx::pool::PoolOptions::<Db>::new().max_connections(4).after_connect(move |connection, _| {
        Box::pin(async move {
            let set = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}");
            connection.execute(AssertSqlSafe(set)).await.map(drop)
        })
    });
    options.connect(fresh.url()).await.expect("the test database")
}

/// So many milliseconds from now, as an expiry.
fn from_now(millis: i64) -> String {
    format!("UTC_TIMESTAMP(6) + INTERVAL {millis} * 1000 MICROSECOND")
}

/// Hours east of Greenwich. MariaDB goes as far as thirteen.
const TIME_ZONES: std::ops::RangeInclusive<i32> = -12..=13;

fn time_zone(hours: i32) -> String {
    format!("SET time_zone = '{}{:02}:00'", if hours < 0 { '-' } else { '+' }, hours.abs())
}

/// Locks one row until the transaction ends.
const LOCK_A_ROW: Option<&str> = Some(
    "SELECT `key` FROM processed_messages WHERE consumer = 'tests.record' AND sender = '' AND `key` = 'locked' FOR UPDATE",
);

/// A table that says which session has deleted how many claims, and a session's name.
const NAME_DELETIONS: &str = "
CREATE TABLE deletions (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, name VARCHAR(100) NOT NULL);
CREATE TRIGGER name_deletions AFTER DELETE ON processed_messages FOR EACH ROW INSERT INTO deletions (name) VALUES (@name);";

/// Makes each deletion take some milliseconds, or fail.
const SLOW_DELETIONS: &str =
    "CREATE TRIGGER slow_deletions AFTER DELETE ON processed_messages FOR EACH ROW DO SLEEP(0.02)";
const FAILING_DELETIONS: &str =
    "CREATE TRIGGER failing_deletions AFTER DELETE ON processed_messages FOR EACH ROW SIGNAL SQLSTATE '45000'";

fn name_session(name: &str) -> String {
    format!("SET @name = '{name}'")
}

const PARAMETER: &str = "?";
/// Where its types stand in a line of the guide's table.
const GUIDE_COLUMN: usize = 4;
/// Around a name that is no plain identifier.
const QUOTE: char = '`';
/// Ids as hand-written code stores them, and what claims one by hand.
const OLD_ID: &str = "VARCHAR(700) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin";
const OLD_CLAIM: &str = "INSERT IGNORE INTO processed_messages (id) VALUES (?)";
const OLD_CLAIM_OF_CONSUMER: &str = "INSERT IGNORE INTO processed_messages (consumer, id) VALUES ('credit', ?)";
/// Bytes, and their lower-case digits.
const BYTES: &str = "VARBINARY(16)";
const HEX: &str = "LOWER(HEX({}))";

fn bytes(hex: &str) -> String {
    format!("x'{hex}'")
}

/// A column that tells no upper case from lower, and what has to be made for it.
const CASELESS_COLLATION: Option<&str> = None;
const CASELESS_ID: &str = "VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci";
/// Columns for ids that are no text, with one of them.
const OTHER_IDS: &[(&str, &str, &str)] = &[
    ("BIGINT UNSIGNED", "18446744073709551615", "18446744073709551615"),
    ("VARBINARY(700)", "'K\u{e4}se'", "K\u{e4}se"),
    ("VARCHAR(100) CHARACTER SET latin1", "'K\u{e4}se'", "K\u{e4}se"),
    ("CHAR(20)", "'evt_1'", "evt_1"),
];
const NO_IDS: &[&str] = &["DOUBLE", "DATETIME", "ENUM('a')"];
/// Columns for times, and whether they say which moment they mean.
const OLD_TIMES: &[(&str, bool)] = &[("TIMESTAMP NULL", true), ("DATETIME", false)];

/// So many milliseconds from now, as such a time; one without a zone in UTC.
fn old_time(millis: i64, moment: bool) -> String {
    let now = if moment { "NOW(6)" } else { "UTC_TIMESTAMP(6)" };
    format!("{now} + INTERVAL {millis} * 1000 MICROSECOND")
}
