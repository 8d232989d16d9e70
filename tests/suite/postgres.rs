//! The suite on PostgreSQL.

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
mod full_disk;
mod handlers;
mod harness;
mod histories;
mod hostile;
mod janitor;
mod joined;
mod migrated;
mod once;
#[path = "postgres_only.rs"]
mod only;
mod ordered;
mod pooled;
mod pressed;
mod processes;
mod purged;
mod replayed;
mod seen;
mod verified;
mod wire;

use sqlx::{Executor as _, Pool};

pub(crate) use servers::Database as Fresh;
pub(crate) use sqlx::{PgConnection as Connection, PgTransaction as Tx, Postgres as Db};

use handlers::Step;
use harness::World;

/// A statement's error aborts the transaction.
const ERROR_ABORTS: bool = true;
/// Outside a transaction every statement commits itself, and no setting can forbid that without leaking from the
/// connection: what a body writes after a ROLLBACK or COMMIT of its own is out of reach.
const AFTER_BODYS_ROLLBACK_STAYS: bool = true;
const BODYS_COMMIT_STAYS: bool = true;
const AFTER_BODYS_COMMIT_STAYS: bool = true;
const DDL_COMMITS: bool = false;
const LOSES_ITS_PLACE_WHEN_DROPPED: bool = false;
/// Begins a transaction that will write.
const BEGIN_TO_WRITE: &str = "BEGIN";
/// What lets a reader and a writer work at the same time.
const READERS_BESIDE_WRITERS: Option<&str> = None;
const ONE_WRITER: bool = false;
const KEY: &str = "key";
/// Some time in the future.
const SOON: &str = "now() + interval '1 hour'";
/// Deletes every claim that may go, without a margin.
const PURGE_EXPIRED: &str = "DELETE FROM processed_messages WHERE expires_at < clock_timestamp()";
/// The type to cast a sum to.
const INTEGER: &str = "BIGINT";
const ISOLATION_LEVELS: &[&str] = &["read committed", "repeatable read", "serializable"];
const SLEEP: &str = "SELECT pg_sleep(0.2)";

/// Replies that a handler of one statement waits for, its statements prepared before.
const ROUND_TRIPS: RoundTrips = RoundTrips { fresh: 4, duplicate: 2, joined: 4, joined_duplicate: 2, by_hand: 4 };

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
fn is_busy<T>(_result: &sqlx::Result<T>) -> bool {
    false
}

/// How long this connection waits for a lock.
async fn wait_setting(connection: &mut Connection) -> String {
    sqlx::query_scalar("SHOW lock_timeout").fetch_one(connection).await.expect("the setting")
}

async fn set_own_wait(connection: &mut Connection) {
    connection.execute("SET lock_timeout = '7777ms'").await.expect("set");
}

/// The isolation of the transaction that is open, or of the next one.
async fn isolation(connection: &mut Connection) -> String {
    sqlx::query_scalar("SHOW transaction_isolation").fetch_one(connection).await.expect("the setting")
}

async fn fresh() -> Fresh {
    servers::Kind::Postgres.fresh_database().await
}

fn url(fresh: &Fresh) -> String {
    fresh.url().to_owned()
}

async fn pool_with_isolation(fresh: &Fresh, level: &'static str) -> Pool<Db> {
    let options = sqlx::pool::PoolOptions::<Db>::new().max_connections(4).after_connect(move |connection, _| {
        Box::pin(async move {
            let set = sqlx::query("SELECT set_config('default_transaction_isolation', $1, false)").bind(level);
            connection.execute(set).await.map(drop)
        })
    });
    options.connect(fresh.url()).await.expect("the test database")
}

/// A body whose violation only COMMIT reports.
async fn deferred_violation(world: &World) -> [Step<'static>; 3] {
    world.run("CREATE TABLE later (id INTEGER UNIQUE DEFERRABLE INITIALLY DEFERRED)").await;
    let insert = Step::Run("INSERT INTO later VALUES (1)");
    [Step::Effect, insert, insert]
}

/// So many milliseconds from now, as an expiry.
fn from_now(millis: i64) -> String {
    format!("clock_timestamp() + {millis} * interval '1 millisecond'")
}

/// Hours east of Greenwich.
const TIME_ZONES: std::ops::RangeInclusive<i32> = -12..=14;

fn time_zone(hours: i32) -> String {
    format!("SET TIME ZONE {hours}")
}

/// Locks one row until the transaction ends.
const LOCK_A_ROW: Option<&str> = Some(
    "SELECT key FROM processed_messages WHERE consumer = 'tests.record' AND sender = '' AND key = 'locked' FOR UPDATE",
);

/// A table that says which session has deleted how many claims, and a session's name.
const NAME_DELETIONS: &str = "
CREATE TABLE deletions (id BIGSERIAL PRIMARY KEY, name TEXT NOT NULL);
CREATE FUNCTION name_deletion() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO deletions (name) VALUES (current_setting('application_name')); RETURN OLD; END $$;
CREATE TRIGGER name_deletions AFTER DELETE ON processed_messages FOR EACH ROW EXECUTE FUNCTION name_deletion();";

/// Makes each deletion take some milliseconds, or fail.
const SLOW_DELETIONS: &str = "
CREATE FUNCTION slow_deletion() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.02); RETURN OLD; END $$;
CREATE TRIGGER slow_deletions AFTER DELETE ON processed_messages FOR EACH ROW EXECUTE FUNCTION slow_deletion();";
const FAILING_DELETIONS: &str = "
CREATE FUNCTION fail_deletion() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
CREATE TRIGGER failing_deletions AFTER DELETE ON processed_messages FOR EACH ROW EXECUTE FUNCTION fail_deletion();";

fn name_session(name: &str) -> String {
    format!("SET application_name = '{name}'")
}

const PARAMETER: &str = "$1";
/// Where its types stand in a line of the guide's table.
const GUIDE_COLUMN: usize = 3;
/// Around a name that is no plain identifier.
const QUOTE: char = '"';
/// Ids as hand-written code stores them, and what claims one by hand.
const OLD_ID: &str = "VARCHAR(700)";
const OLD_CLAIM: &str = "INSERT INTO processed_messages (id) VALUES ($1) ON CONFLICT DO NOTHING";
const OLD_CLAIM_OF_CONSUMER: &str =
    "INSERT INTO processed_messages (consumer, id) VALUES ('credit', $1) ON CONFLICT DO NOTHING";
/// Bytes, and their lower-case digits.
const BYTES: &str = "BYTEA";
const HEX: &str = "encode({}, 'hex')";

fn bytes(hex: &str) -> String {
    format!("'\\x{hex}'::bytea")
}

/// A column that tells no upper case from lower, and what has to be made for it.
const CASELESS_COLLATION: Option<&str> =
    Some("CREATE COLLATION caseless (provider = icu, locale = 'und-u-ks-level2', deterministic = false)");
const CASELESS_ID: &str = "VARCHAR(100) COLLATE caseless";
/// Columns for ids that are no text, with one of them.
const OTHER_IDS: &[(&str, &str, &str)] = &[
    ("BIGINT", "9007199254740993", "9007199254740993"),
    ("UUID", "'6F9619FF-8B86-D011-B42D-00C04FC964FF'", "6f9619ff-8b86-d011-b42d-00c04fc964ff"),
    ("CHAR(20)", "'evt_1'", "evt_1"),
    ("TEXT", "'evt_1'", "evt_1"),
];
const NO_IDS: &[&str] = &["BYTEA", "DOUBLE PRECISION", "TIMESTAMPTZ"];
/// Columns for times, and whether they say which moment they mean.
const OLD_TIMES: &[(&str, bool)] = &[("TIMESTAMPTZ", true), ("TIMESTAMP", false)];

/// So many milliseconds from now, as such a time in UTC.
fn old_time(millis: i64, moment: bool) -> String {
    let zone = if moment { "" } else { " AT TIME ZONE 'UTC'" };
    format!("(clock_timestamp() + {millis} * interval '1 millisecond'){zone}")
}
