//! PostgreSQL: a cursor as the proof that the transaction is still the claim's own.
//!
//! BEGIN declares one. The end sends, in one request, CLOSE, COMMIT, and an empty transaction for sqlx to close without
//! waiting: sqlx sees neither the state of a transaction nor whether COMMIT was answered by ROLLBACK. CLOSE fails in an
//! aborted transaction, in another one, and outside one; then the rest of the request is not executed. Unlike a SELECT it
//! is not planned, and unlike a savepoint a cursor takes no transaction id. Round trips that the handler waits for: BEGIN,
//! claim, the body's, end. (COMMIT AND CHAIN would save one statement; what speaks the protocol without being PostgreSQL may
//! lack it.)
//!
//! A joined handler checks `txid_current()` instead, which the claim returns: an id is never reused, nested handlers share
//! it, and a cursor of a savepoint that nobody uses would stay open.
//!
//! Measured against unverified lines by hand: `cargo bench -p tests --bench verification`.
//!
//! Sources: <https://www.postgresql.org/docs/current/sql-close.html>,
//! <https://www.postgresql.org/docs/current/functions-info.html#FUNCTIONS-PG-SNAPSHOT>,
//! <https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-MULTI-STATEMENT>.

mod watch;

use std::mem;
use std::sync::LazyLock;

use sqlx::postgres::{PgConnection, PgDatabaseError, PgTransactionManager};
use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, PgTransaction, Pool, Postgres, Row as _, SqlSafeStr as _, SqlStr,
};
use sqlx_core::transaction::TransactionManager as _;

use watch::{Passed, Watch, begin, checked, is_aborted};

use super::nested::Nested;
use super::{
    Admission, Begun, Failed, Failure, NewClaim, Occurred, Operations, Progress, Recalled, Statements, TableName,
    Texts, Verdict, lookups, unwind,
};
use crate::batch::{self, ItemOutcome};
use crate::replay::StoredValue;
use crate::sequence::Position;
use crate::store::Settings;
use crate::{Database, Error, migrate};

macro_rules! claim {
    ($expires:literal, $judged:literal) => {
        concat!(
            "\
WITH setting AS MATERIALIZED (
    SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', $5, true)
)
INSERT INTO {table} (consumer, sender, key, fingerprint, expires_at)
SELECT $1, $2, $3, $4, ",
            $expires,
            " FROM setting
ON CONFLICT (consumer, sender, key) DO NOTHING
RETURNING CASE WHEN set_config('lock_timeout', (SELECT before FROM setting), true) IS NOT NULL THEN txid_current() END",
            $judged
        )
    };
}

/// Parameters: identity, fingerprint, milliseconds to wait, and how long the claim lives in microseconds. The answer is the
/// transaction's id; no row comes of a duplicate.
///
/// `clock_timestamp()` is the wall clock, `now()` would be the transaction's start. A duplicate leaves neither a dead row nor
/// an error in the log. The conflict target makes the statement fail if the unique key is gone. `lock_timeout` is put back by
/// the same statement, after the insert; of a duplicate by the rollback.
const CLAIM: &str = claim!("clock_timestamp() + $6 * interval '1 microsecond'", "");

/// The same of a message that says when it occurred. Parameters: when the claim expires and when the message occurred, in
/// place of how long it lives. In RETURNING the clock is read after the insert, so that a purge which has deleted an older
/// claim is over (G10).
const CLAIM_DATED: &str = claim!(
    "timestamptz 'epoch' + $6 * interval '1 microsecond'",
    ",
          expires_at <= clock_timestamp(),
          timestamptz 'epoch' + $7 * interval '1 microsecond' > clock_timestamp() + interval '1 day'"
);

/// The same answers without a claim. Parameters as the last two of the claim's.
const LOOK: &str = "\
SELECT txid_current(),
       timestamptz 'epoch' + $1 * interval '1 microsecond' <= clock_timestamp(),
       timestamptz 'epoch' + $2 * interval '1 microsecond' > clock_timestamp() + interval '1 day'";

/// No row comes of `advanced` where the entity is as far. Waits as the claim does.
const ADVANCE: &str = "\
WITH setting AS MATERIALIZED (
    SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', $5, true)
), advanced AS (
    INSERT INTO {positions} AS stored (consumer, sender, entity, number, updated_at)
    SELECT $1, $2, $3, $4, clock_timestamp() FROM setting
    ON CONFLICT (consumer, sender, entity) DO UPDATE SET number = excluded.number, updated_at = excluded.updated_at
    WHERE stored.number < excluded.number
    RETURNING txid_current() AS id
)
SELECT id, set_config('lock_timeout', before, true) FROM setting LEFT JOIN advanced ON true";

/// Outside the claim's transaction there is no id, and nothing is stored.
const STORE: &str = "\
UPDATE {table} SET value = $4
WHERE consumer = $1 AND sender = $2 AND key = $3 AND txid_current_if_assigned() = $5";

const TEXTS: Texts = Texts {
    quote: '"',
    claim: CLAIM,
    recall: "SELECT fingerprint, value FROM {table} WHERE consumer = $1 AND sender = $2 AND key = $3",
    store: STORE,
    advance: ADVANCE,
    position: "SELECT number FROM {positions} WHERE consumer = $1 AND sender = $2 AND entity = $3",
    find: "SELECT (extract(epoch FROM expires_at) * 1000)::bigint FROM {table} WHERE consumer = $1 AND sender = $2 AND key = $3",
    forget: "DELETE FROM {table} WHERE consumer = $1 AND sender = $2 AND key = $3",
};

const MIGRATIONS: &[migrate::Step] = &[
    migrate::Step {
        version: 1,
        name: "processed_messages",
        sql: include_str!("../../migrations/postgres/0001_processed_messages.sql"),
    },
    migrate::Step {
        version: 2,
        name: "fingerprint_and_value",
        sql: include_str!("../../migrations/postgres/0002_fingerprint_and_value.sql"),
    },
    migrate::Step { version: 3, name: "positions", sql: include_str!("../../migrations/postgres/0003_positions.sql") },
    migrate::Step {
        version: 4,
        name: "expires_at",
        sql: include_str!("../../migrations/postgres/0004_expires_at.sql"),
    },
    migrate::Step { version: 5, name: "janitor", sql: include_str!("../../migrations/postgres/0005_janitor.sql") },
];

/// Any number that no other application's advisory lock is likely to be.
const MIGRATION_LOCK: i64 = 0x6964_656d_706f_7465;

impl Database for Postgres {}

#[expect(private_interfaces, reason = "sealed: see the trait")]
impl Operations for Postgres {
    type Watch = Watch;

    const SURVIVES_CANCELLATION: bool = true;
    const CLOSES_LEASED: bool = true;
    const ENDS_IN_AN_EMPTY_TRANSACTION: bool = true;

    fn default_settings() -> &'static Settings {
        static DEFAULT: LazyLock<Settings> = LazyLock::new(Settings::of::<Postgres>);
        &DEFAULT
    }

    fn statements(table: &TableName) -> Statements {
        TEXTS.over(table)
    }

    async fn begin<'c>(
        connection: &'c mut PgConnection,
        admission: Admission<'_>,
        _reclaimable: bool,
    ) -> Result<Begun<'c, Postgres>, sqlx::Error> {
        let transaction = connection.begin_with(begin(admission.isolation)).await?;
        admitted(transaction, admission).await
    }

    async fn join<'c>(
        connection: &'c mut PgConnection,
        admission: Admission<'_>,
    ) -> Result<Begun<'c, Postgres>, sqlx::Error> {
        // The request is on its way, its reply will be drained, and sqlx has not counted it: forgotten, it is a
        // savepoint that nobody uses.
        admitted(Nested::begin(connection, |begin| mem::forget(begin)).await?, admission).await
    }

    async fn admit(connection: &mut PgConnection, admission: Admission<'_>) -> Result<Verdict, sqlx::Error> {
        Ok(admit(connection, admission).await?.map_or_else(|verdict| verdict, |(_, outcomes)| Verdict::New(outcomes)))
    }

    async fn commit(
        mut transaction: PgTransaction<'_>,
        watch: Watch,
        admission: Admission<'_>,
        value: Option<&StoredValue>,
    ) -> Result<(), Failed> {
        unwind::<Self>(&mut transaction, watch.depth).await.map_err(Failed::AtEnd)?;
        if let (Some(NewClaim { identity, .. }), Some(StoredValue(value))) = (admission.claim, value) {
            let store = sqlx::query(admission.statements.store.clone())
                .persistent(admission.statements.named)
                .bind(&*identity.consumer)
                .bind(&*identity.sender)
                .bind(&*identity.key)
                .bind(value)
                .bind(watch.id);
            match store.execute(&mut *transaction).await {
                Err(error) if !is_aborted(&error) => return Err(Failed::AtEnd(error)),
                _ => {} // what is lost fails the check
            }
        }
        let request = match watch.savepoint() {
            None => SqlStr::from_static("CLOSE idempotent_claim; COMMIT; BEGIN"),
            // A fresh savepoint of the name, so that the rollback to it that sqlx queues undoes nothing.
            Some(savepoint) => {
                let check = watch.check();
                AssertSqlSafe(format!("{check}; RELEASE SAVEPOINT {savepoint}; SAVEPOINT {savepoint}")).into_sql_str()
            }
        };
        match checked(&mut transaction, request).await {
            Ok(()) => Ok(()), // dropping the transaction queues sqlx's own end of what is left, an empty one
            Err((Passed(false), error @ sqlx::Error::Database(_))) => Err(watch.give_up(transaction, error).await),
            Err((_, error)) => Err(Failed::AtEnd(error)),
        }
    }

    async fn rollback(
        mut transaction: PgTransaction<'_>,
        watch: Watch,
        _admission: Admission<'_>,
    ) -> Result<(), Failed> {
        unwind::<Self>(&mut transaction, watch.depth).await.map_err(Failed::AtEnd)?;
        match checked(&mut transaction, AssertSqlSafe(watch.check()).into_sql_str()).await {
            Err((_, error @ sqlx::Error::Database(_))) if !is_aborted(&error) => {
                Err(watch.give_up(transaction, error).await)
            }
            _ => transaction.rollback().await.map_err(Failed::AtEnd),
        }
    }

    async fn commit_own(mut transaction: PgTransaction<'_>) -> Result<(), Failed> {
        match PgTransactionManager::get_transaction_depth(&transaction) {
            0 => return Err(Failed::Lost { kept: false }),
            1 => {}
            _ => return end_savepoint(transaction).await,
        }
        // SAVEPOINT fails in an aborted transaction, and outside one.
        let request = SqlStr::from_static("SAVEPOINT idempotent_commit; COMMIT; BEGIN");
        match checked(&mut transaction, request).await {
            Ok(()) => Ok(()),
            Err((Passed(false), sqlx::Error::Database(_))) => Err(Failed::Lost { kept: false }),
            Err((_, error)) => Err(Failed::AtEnd(error)),
        }
    }

    fn is_tainted(connection: &PgConnection, progress: Progress) -> bool {
        // Once it is begun, sqlx queues the rollback itself, unless the body has forgotten a nested transaction.
        progress == Progress::Beginning || (progress != Progress::Clean && connection.is_in_transaction())
    }

    async fn restore(connection: &mut PgConnection, _progress: Progress) -> Result<(), sqlx::Error> {
        unwind::<Self>(connection, 0).await?;
        // Outside a transaction each statement begins its own. Asking first avoids ROLLBACK's warning in the log.
        let idle = sqlx::raw_sql("SELECT now() = statement_timestamp()").fetch_one(&mut *connection).await;
        match idle.and_then(|row| sqlx::Row::try_get(&row, 0)) {
            Ok(true) => Ok(()),
            Ok(false) | Err(sqlx::Error::Database(_)) => connection.execute("ROLLBACK").await.map(drop),
            Err(error) => Err(error),
        }
    }

    async fn migrate(pool: &Pool<Postgres>, table: &TableName) -> Result<(), Error> {
        let mut transaction = pool.begin().await?;
        // Held until the transaction ends, so it also works behind a pooler that shares connections.
        let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(MIGRATION_LOCK).persistent(false);
        lock.execute(&mut *transaction).await?;
        // A table of the name in another schema of the `search_path` is not in the way.
        let schema: Option<String> =
            sqlx::query_scalar("SELECT current_schema()::text").persistent(false).fetch_one(&mut *transaction).await?;
        migrate::refuse_other::<Postgres>(&mut *transaction, &table.made_in(schema.as_deref())).await?;
        migrate::run(&mut *transaction, table, '"', MIGRATIONS).await?;
        Ok(transaction.commit().await?)
    }

    lookups!(Postgres);
}

/// The transaction's id, if the message may run.
async fn admit(
    connection: &mut PgConnection,
    admission: Admission<'_>,
) -> Result<Result<(i64, Vec<ItemOutcome>), Verdict>, sqlx::Error> {
    let Admission { statements, claim, occurred, position, .. } = admission;
    if let Some(messages) = admission.batch {
        return Ok(match batch::admit::<Postgres>(connection, admission, messages).await? {
            (Verdict::New(outcomes), Some(id)) => Ok((id, outcomes)),
            (Verdict::New(outcomes), None) => {
                let id = sqlx::query_scalar("SELECT txid_current()").persistent(statements.named);
                Ok((id.fetch_one(connection).await?, outcomes))
            }
            (refused, _) => Err(refused),
        });
    }
    let wait = admission.wait_millis();
    let (until, at) = (occurred.map(|occurred| micros(occurred.expires)), occurred.map(|occurred| micros(occurred.at)));
    let mut id = None;
    if let Some(NewClaim { identity, fingerprint }) = claim {
        let text = if occurred.is_some() { statements.fill(CLAIM_DATED) } else { statements.claim.clone() };
        let insert = sqlx::query(text)
            .persistent(statements.named)
            .bind(&*identity.consumer)
            .bind(&*identity.sender)
            .bind(&*identity.key)
            .bind(fingerprint.map(<[u8; 32]>::as_slice))
            .bind(&*wait);
        let insert = match occurred {
            None => insert.bind(admission.retention.as_secs_f64() * 1e6),
            Some(_) => insert.bind(until).bind(at),
        };
        let Some(row) = insert.fetch_optional(&mut *connection).await? else {
            return Ok(Err(Verdict::Duplicate));
        };
        id = Some(row.try_get(0)?);
        if occurred.is_some()
            && let Some(refused) = too_old_or_ahead(occurred, row.try_get(1)?, row.try_get(2)?)
        {
            return Ok(Err(refused));
        }
    } else if occurred.is_some() || position.is_none() {
        let look = sqlx::query_as::<_, (i64, Option<bool>, Option<bool>)>(LOOK).bind(until).bind(at);
        let look = look.persistent(statements.named);
        let (transaction, expired, ahead) = look.fetch_one(&mut *connection).await?;
        id = Some(transaction);
        if let Some(refused) = too_old_or_ahead(occurred, expired, ahead) {
            return Ok(Err(refused));
        }
    }
    if let Some(Position { consumer, sender, entity, number }) = position {
        let advance = sqlx::query_scalar(statements.advance.clone())
            .persistent(statements.named)
            .bind(consumer)
            .bind(&**sender)
            .bind(&**entity)
            .bind(number)
            .bind(&*wait);
        id = advance.fetch_one(&mut *connection).await?;
    }
    Ok(id.map(|id| (id, Vec::new())).ok_or(Verdict::Stale))
}

/// PostgreSQL multiplies intervals by floating-point numbers, which are exact until the year 2255.
#[expect(clippy::cast_precision_loss, reason = "microseconds that far away do not matter")]
const fn micros(micros: i64) -> f64 {
    micros as f64
}

fn too_old_or_ahead(occurred: Option<Occurred>, expired: Option<bool>, ahead: Option<bool>) -> Option<Verdict> {
    occurred?;
    match (expired, ahead) {
        (Some(false), Some(false)) => None,
        (Some(false), _) => Some(Verdict::Ahead(0)),
        _ => Some(Verdict::Expired(0)),
    }
}

async fn admitted<'c>(
    mut transaction: PgTransaction<'c>,
    admission: Admission<'_>,
) -> Result<Begun<'c, Postgres>, sqlx::Error> {
    // Without an id it may not run: dropping the transaction queues its rollback.
    Ok(admit(&mut transaction, admission).await?.map(|(id, outcomes)| {
        let depth = PgTransactionManager::get_transaction_depth(&transaction);
        (transaction, Watch { id, depth }, outcomes)
    }))
}

/// Releases a savepoint of the application's own.
async fn end_savepoint(transaction: PgTransaction<'_>) -> Result<(), Failed> {
    match transaction.commit().await {
        Err(error) if is_aborted(&error) => Err(Failed::Lost { kept: false }),
        ended => ended.map_err(Failed::AtEnd),
    }
}

/// <https://www.postgresql.org/docs/current/errcodes-appendix.html>
pub(super) fn failure(error: &PgDatabaseError) -> Failure {
    match error.code() {
        "40003" | "57P01" | "57P02" | "57P03" => Failure::Unknown,
        "55P03" => Failure::LockTimeout,
        "40001" | "40P01" => Failure::Conflict, // serialization, deadlock
        // cancelled by a time-out, read-only (a standby after a failover), ended for idling or for its length
        "57014" | "25006" | "25P03" | "25P04" | "57P05" => Failure::Transient,
        "42P01" | "42703" | "42P10" | "3F000" => Failure::Schema,
        code => match code.get(..2) {
            Some("08") => Failure::Unknown,
            Some("53") => Failure::Transient, // insufficient resources
            Some("22" | "23") => Failure::Data,
            _ => Failure::Other,
        },
    }
}
