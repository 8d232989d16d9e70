//! The suite on SQLite.

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
#[path = "sqlite_only.rs"]
mod only;
mod ordered;
mod pressed;
mod processes;
mod purged;
mod replayed;
mod seen;
mod verified;

use sqlx::{Executor as _, Pool};

pub(crate) use servers::Database as Fresh;
pub(crate) use sqlx::{Sqlite as Db, SqliteConnection as Connection, SqliteTransaction as Tx};

use handlers::Step;
use harness::World;

/// A statement's error undoes the statement alone.
const ERROR_ABORTS: bool = false;
/// The commit hook refuses what the body sends or writes outside the claim's transaction.
const AFTER_BODYS_ROLLBACK_STAYS: bool = false;
const BODYS_COMMIT_STAYS: bool = false;
const AFTER_BODYS_COMMIT_STAYS: bool = false;
const DDL_COMMITS: bool = false;
const LOSES_ITS_PLACE_WHEN_DROPPED: bool = false;
/// Begins a transaction that will write.
const BEGIN_TO_WRITE: &str = "BEGIN IMMEDIATE";
/// What lets a reader and a writer work at the same time.
const READERS_BESIDE_WRITERS: Option<&str> = Some("PRAGMA journal_mode = WAL");
/// One writer holds the whole database, whatever its key.
const ONE_WRITER: bool = true;
/// It has nothing that waits.
const SLEEP: &str = "SELECT 0";
const KEY: &str = "key";
/// Some time in the future.
const SOON: &str = "unixepoch() * 1000 + 3600000";
/// Deletes every claim that may go, without a margin.
const PURGE_EXPIRED: &str = "DELETE FROM processed_messages WHERE expires_at < unixepoch('subsec') * 1000";
/// The type to cast a sum to.
const INTEGER: &str = "INTEGER";
const ISOLATION_LEVELS: &[&str] = &["serializable"];

/// Whether a statement of the test's own was in another's way.
fn is_busy<T>(result: &sqlx::Result<T>) -> bool {
    matches!(result, Err(sqlx::Error::Database(error)) if matches!(error.code().as_deref(), Some("5" | "517")))
}

/// How long this connection waits for a lock.
async fn wait_setting(connection: &mut Connection) -> String {
    let millis: i64 = sqlx::query_scalar("PRAGMA busy_timeout").fetch_one(connection).await.expect("the setting");
    millis.to_string()
}

async fn set_own_wait(connection: &mut Connection) {
    connection.execute("PRAGMA busy_timeout = 4777").await.expect("set");
}

/// The isolation of the transaction that is open, or of the next one.
#[expect(clippy::unused_async, reason = "as on the other databases")]
async fn isolation(_connection: &mut Connection) -> String {
    "serializable".to_owned()
}

async fn fresh() -> Fresh {
    servers::Kind::Sqlite.fresh_database().await
}

fn url(fresh: &Fresh) -> String {
    fresh.url().to_owned()
}

async fn pool_with_isolation(fresh: &Fresh, _level: &'static str) -> Pool<Db> {
    harness::connect(fresh, 4).await
}

/// A body whose violation only COMMIT reports.
async fn deferred_violation(world: &World) -> [Step<'static>; 2] {
    world.run("CREATE TABLE parents (id INTEGER PRIMARY KEY)").await;
    world.run("CREATE TABLE children (parent INTEGER REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)").await;
    [Step::Effect, Step::Run("INSERT INTO children VALUES (1)")]
}

/// So many milliseconds from now, as an expiry.
fn from_now(millis: i64) -> String {
    format!("CAST(unixepoch('subsec') * 1000 AS INTEGER) + {millis}")
}

/// Sessions have none.
const TIME_ZONES: std::ops::Range<i32> = 0..0;

const fn time_zone(_hours: i32) -> String {
    String::new()
}

/// There are no locks of rows.
const LOCK_A_ROW: Option<&str> = None;

/// A table that says which session has deleted how many claims, and a session's name.
const NAME_DELETIONS: &str = "CREATE TABLE deletions (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL)";

/// Makes each deletion take some milliseconds, or fail.
const SLOW_DELETIONS: &str = "
CREATE TABLE many AS SELECT value FROM json_each('[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22]');
CREATE TRIGGER slow_deletions AFTER DELETE ON processed_messages FOR EACH ROW
    BEGIN SELECT count(*) FROM many AS a, many AS b, many AS c, many AS d WHERE a.value + b.value * c.value = d.value; END";
const FAILING_DELETIONS: &str = "CREATE TRIGGER failing_deletions AFTER DELETE ON processed_messages FOR EACH ROW \
     BEGIN SELECT RAISE(ABORT, 'no'); END";

fn name_session(name: &str) -> String {
    format!(
        "CREATE TEMP TRIGGER name_deletions AFTER DELETE ON main.processed_messages FOR EACH ROW \
         BEGIN INSERT INTO deletions (name) VALUES ('{name}'); END"
    )
}

const PARAMETER: &str = "?";
/// Where its types stand in a line of the guide's table.
const GUIDE_COLUMN: usize = 5;
/// Around a name that is no plain identifier.
const QUOTE: char = '"';
/// Ids as hand-written code stores them, and what claims one by hand.
const OLD_ID: &str = "TEXT";
const OLD_CLAIM: &str = "INSERT INTO processed_messages (id) VALUES (?) ON CONFLICT DO NOTHING";
const OLD_CLAIM_OF_CONSUMER: &str =
    "INSERT INTO processed_messages (consumer, id) VALUES ('credit', ?) ON CONFLICT DO NOTHING";
/// Bytes, and their lower-case digits.
const BYTES: &str = "BLOB";
const HEX: &str = "LOWER(HEX({}))";

fn bytes(hex: &str) -> String {
    format!("x'{hex}'")
}

/// A column that tells no upper case from lower, and what has to be made for it.
const CASELESS_COLLATION: Option<&str> = None;
const CASELESS_ID: &str = "TEXT COLLATE NOCASE";
/// Columns for ids that are no text, with one of them.
const OTHER_IDS: &[(&str, &str, &str)] = &[
    ("INTEGER", "9007199254740993", "9007199254740993"),
    ("BLOB", "x'4bc3a47365'", "K\u{e4}se"),
    ("BLOB", "'text'", "text"),
    ("NUMERIC", "'17'", "17"),
];
const NO_IDS: &[&str] = &[];
/// Columns for times, and whether they say which moment they mean.
const OLD_TIMES: &[(&str, bool)] = &[("TEXT", false)];

/// So many milliseconds from now, as such a time in UTC.
fn old_time(millis: i64, _moment: bool) -> String {
    format!("strftime('%Y-%m-%d %H:%M:%f', 'now', '{} seconds')", millis / 1_000)
}
