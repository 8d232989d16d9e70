//! What a database has to provide. One file each holds its SQL and its error numbers; the flow that uses
//! them is in `process.rs`, written once.

#[cfg(feature = "postgres")]
use std::borrow::Cow;
use std::future::Future;
use std::time::Duration;

use sqlx::{Pool, Transaction};
use sqlx_core::transaction::TransactionManager as _;

use crate::Error;
use crate::batch::ItemOutcome;
use crate::catalog::{Handler, Isolation, Spec};
use crate::key::Fingerprint;
use crate::message::Message;
use crate::outcome::Identity;
use crate::replay::StoredValue;
use crate::sequence::Position;
use crate::store::Settings;

mod adoption;
mod bulk;
mod failure;
#[cfg(feature = "mysql")]
mod mysql;
mod nested;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
mod table;
mod upkeep;

pub(crate) use adoption::{Adopting, Column, ColumnKind, OldRow, OldTable};
pub(crate) use bulk::Bulk;
pub(crate) use failure::{Failure, failure, failure_at_commit};
pub(crate) use table::{Statements, TableName, Texts};
pub(crate) use upkeep::{Batch, Deleted, Upkeep};

/// The databases this library works with: `Postgres`, `MySql` (MariaDB too) and `Sqlite`, each behind the feature of its name.
///
/// Name it to write code over any of them: `async fn f<DB: idempotent_runtime::Database>(pool: &sqlx::Pool<DB>)`.
pub trait Database: sqlx::Database + Operations + Upkeep + Adopting + Bulk {}

/// Sealed, and free to change: this is not part of the public interface.
#[expect(private_interfaces, reason = "sealed: only the databases of this crate implement it")]
#[doc(hidden)]
pub trait Operations: sqlx::Database {
    /// What proves at the end that the transaction is still the claim's own.
    type Watch: Send;

    /// What a source has that is no [`ClaimStore`](crate::ClaimStore).
    fn default_settings() -> &'static Settings;

    /// The SQL for a table of this name.
    fn statements(table: &TableName) -> Statements;

    /// Begins a transaction on a connection outside one, and admits the message in it. A connection that is not
    /// `reclaimable` stays the caller's as it is if the future is dropped: no setting may be left on it.
    fn begin<'c>(
        connection: &'c mut Self::Connection,
        admission: Admission<'_>,
        reclaimable: bool,
    ) -> impl Future<Output = Result<Begun<'c, Self>, sqlx::Error>> + Send;

    /// Begins a savepoint in the caller's transaction, and admits the message behind it. If the future is dropped, this
    /// is undone, and nothing of the caller's. [`sqlx::Error::BeginFailed`] where the caller's transaction is gone.
    fn join<'c>(
        connection: &'c mut Self::Connection,
        admission: Admission<'_>,
    ) -> impl Future<Output = Result<Begun<'c, Self>, sqlx::Error>> + Send;

    /// Admits the message in the transaction that is open. Waits for a rival that has claimed it and not yet committed.
    fn admit(
        connection: &mut Self::Connection,
        admission: Admission<'_>,
    ) -> impl Future<Output = Result<Verdict, sqlx::Error>> + Send;

    /// Stores the value, if there is one, and commits what [`begin`](Operations::begin) began, or releases what
    /// [`join`](Operations::join) began, if the transaction is still the claim's own.
    fn commit(
        transaction: Transaction<'_, Self>,
        watch: Self::Watch,
        admission: Admission<'_>,
        value: Option<&StoredValue>,
    ) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Rolls back what [`begin`](Operations::begin) or [`join`](Operations::join) began.
    fn rollback(
        transaction: Transaction<'_, Self>,
        watch: Self::Watch,
        admission: Admission<'_>,
    ) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Commits a transaction of the application's own, if it is alive.
    fn commit_own(transaction: Transaction<'_, Self>) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Whether a connection must be [restored](Operations::restore) before others use it.
    fn is_tainted(connection: &Self::Connection, progress: Progress) -> bool;

    /// Whether a connection that a dropped future has left in the middle of a request can still be used.
    const SURVIVES_CANCELLATION: bool;

    /// Whether a pool's connection that the caller holds is closed for the same reasons.
    const CLOSES_LEASED: bool;

    /// Whether a transaction ends with an empty one that sqlx has yet to close. A pool pings what comes back to it; a
    /// connection that the caller keeps would stay in it.
    const ENDS_IN_AN_EMPTY_TRANSACTION: bool;

    /// Brings a connection back to what it was before [`begin`](Operations::begin).
    fn restore(
        connection: &mut Self::Connection,
        progress: Progress,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Puts back the settings of a connection on which [`begin`](Operations::begin) has failed, and nothing else.
    fn put_settings_back(_connection: &mut Self::Connection) -> impl Future<Output = Result<(), sqlx::Error>> + Send {
        std::future::ready(Ok(()))
    }

    /// Creates or updates the claim table.
    fn migrate(pool: &Pool<Self>, table: &TableName) -> impl Future<Output = Result<(), Error>> + Send;

    /// When the claim expires, in Unix milliseconds, if it is there.
    fn find(
        pool: &Pool<Self>,
        statements: &Statements,
        identity: [&str; 3],
    ) -> impl Future<Output = Result<Option<i64>, sqlx::Error>> + Send;

    /// Deletes the claim; `false` if it was not there.
    fn forget(
        pool: &Pool<Self>,
        statements: &Statements,
        identity: [&str; 3],
    ) -> impl Future<Output = Result<bool, sqlx::Error>> + Send;

    /// The number that was applied last to the entity.
    fn position(
        pool: &Pool<Self>,
        statements: &Statements,
        entity: [&str; 3],
    ) -> impl Future<Output = Result<Option<i64>, sqlx::Error>> + Send;

    /// What the claim holds beside its identity, if it is there.
    fn recall(
        connection: &mut Self::Connection,
        statements: &Statements,
        identity: [&str; 3],
    ) -> impl Future<Output = Result<Option<Recalled>, sqlx::Error>> + Send;
}

/// The statements that read or delete one row by its identity, which differ by their text alone.
macro_rules! lookups {
    ($database:ty) => {
        async fn find(
            pool: &Pool<$database>,
            statements: &Statements,
            [consumer, sender, key]: [&str; 3],
        ) -> Result<Option<i64>, sqlx::Error> {
            let find = sqlx::query_scalar(statements.find.clone()).bind(consumer).bind(sender).bind(key);
            $crate::database::lookup!(pool, statements, find.fetch_optional)
        }

        async fn forget(
            pool: &Pool<$database>,
            statements: &Statements,
            [consumer, sender, key]: [&str; 3],
        ) -> Result<bool, sqlx::Error> {
            let forget = sqlx::query(statements.forget.clone()).bind(consumer).bind(sender).bind(key);
            let forgotten = $crate::database::lookup!(pool, statements, forget.execute)?;
            Ok(forgotten.rows_affected() > 0)
        }

        async fn position(
            pool: &Pool<$database>,
            statements: &Statements,
            [consumer, sender, entity]: [&str; 3],
        ) -> Result<Option<i64>, sqlx::Error> {
            let position = sqlx::query_scalar(statements.position.clone()).bind(consumer).bind(sender).bind(entity);
            $crate::database::lookup!(pool, statements, position.fetch_optional)
        }

        async fn recall(
            connection: &mut <$database as sqlx::Database>::Connection,
            statements: &Statements,
            [consumer, sender, key]: [&str; 3],
        ) -> Result<Option<Recalled>, sqlx::Error> {
            let recall = sqlx::query_as(statements.recall.clone()).bind(consumer).bind(sender).bind(key);
            let recalled = $crate::database::lookup!(connection, statements, recall.fetch_optional)?;
            Ok(recalled.map(|(fingerprint, value): (_, Option<String>)| Recalled {
                fingerprint,
                value: value.map(StoredValue),
            }))
        }
    };
}

/// Runs one statement. Without a name it is prepared and executed in two requests, which a pooler sends to two sessions
/// unless they are in one transaction.
macro_rules! lookup {
    ($on:ident, $statements:ident, $query:ident.$run:ident) => {
        if $statements.named {
            $query.$run($on).await
        } else {
            let mut transaction = $on.begin().await?;
            let result = $query.persistent(false).$run(&mut *transaction).await?;
            transaction.commit().await?;
            Ok(result)
        }
    };
}

use lookup;
use lookups;

/// How long a rival may hold a claim unless the handler says otherwise. On SQLite the connection says so.
#[cfg(feature = "mysql")]
const DEFAULT_WAIT: Duration = Duration::from_secs(5);
/// The same as PostgreSQL reads it.
#[cfg(feature = "postgres")]
const DEFAULT_WAIT_MILLIS: &str = "5000";

/// What has to hold before the body of a message runs, and what is written of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission<'a> {
    pub(crate) statements: &'a Statements,
    /// Nobody has claimed it.
    pub(crate) claim: Option<NewClaim<'a>>,
    /// It is not too old.
    pub(crate) occurred: Option<Occurred>,
    /// It is newer than what was applied to its entity.
    pub(crate) position: Option<&'a Position>,
    /// Instead of one message, these.
    pub(crate) batch: Option<&'a [Message]>,
    /// How long claims live that do not say when they occurred.
    pub(crate) retention: Duration,
    /// How long a rival may hold what is claimed here, if the handler says so.
    pub(crate) wait: Option<Duration>,
    pub(crate) isolation: Option<Isolation>,
}

impl<'a> Admission<'a> {
    /// What the handler says of all of its messages.
    pub(crate) const fn of(handler: &Handler, settings: &'a Settings) -> Self {
        let &Spec { wait_millis, isolation, .. } = handler.spec();
        Self {
            statements: &settings.statements,
            claim: None,
            occurred: None,
            position: None,
            batch: None,
            retention: handler.retention(),
            wait: match wait_millis {
                Some(millis) => Some(Duration::from_millis(millis)),
                None => None,
            },
            isolation,
        }
    }
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
impl Admission<'_> {
    /// How long a rival may hold what is claimed here.
    #[cfg(feature = "mysql")]
    pub(crate) fn wait(&self) -> Duration {
        self.wait.unwrap_or(DEFAULT_WAIT)
    }

    /// The same for PostgreSQL, to which 0 would mean without limit.
    #[cfg(feature = "postgres")]
    pub(crate) fn wait_millis(&self) -> Cow<'static, str> {
        match self.wait {
            None => Cow::Borrowed(DEFAULT_WAIT_MILLIS),
            Some(wait) => Cow::Owned(wait.as_millis().clamp(1, 0x7FFF_FFFF).to_string()),
        }
    }

    /// A claim that the message or the batch would have, and a position.
    #[cfg(feature = "mysql")]
    pub(crate) fn any(&self) -> (Option<&Identity>, Option<&Position>) {
        match self.batch {
            None => (self.claim.map(|claim| claim.identity), self.position),
            Some(messages) => (
                messages.iter().find_map(|message| message.claim.as_ref()).map(|claim| &claim.0),
                messages.iter().find_map(|message| message.position.as_ref()),
            ),
        }
    }
}

/// The claim of one message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewClaim<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) fingerprint: Option<&'a Fingerprint>,
}

/// When a message occurred and when its claim expires, in Unix microseconds, within what every database can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Occurred {
    pub(crate) at: i64,
    pub(crate) expires: i64,
}

impl Occurred {
    /// 9000-01-01, which is before the last date of every database.
    const LATEST: i128 = 221_845_392_000_000_000;

    /// What is too far away is brought nearer without changing sides: the past stays past, and the future more than a day
    /// ahead.
    pub(crate) fn new(unix_nanos: i128, retention: Duration) -> Self {
        let at = unix_nanos.div_euclid(1_000);
        let clamped = |micros: i128| i64::try_from(micros.clamp(0, Self::LATEST)).unwrap_or_default();
        Self { at: clamped(at), expires: clamped(at.saturating_add(retention.as_micros().cast_signed())) }
    }
}

/// Whether a message may run.
#[derive(Debug)]
pub enum Verdict {
    /// It may: what is needed has been written in the open transaction. Of a batch, what becomes of each item.
    New(Vec<ItemOutcome>),
    /// It has a claim.
    Duplicate,
    /// It is too old; of a batch, which item.
    Expired(usize),
    /// It says that it is from the future; of a batch, which item.
    Ahead(usize),
    /// Its entity is further than that.
    Stale,
    /// No item of the batch may run, and what becomes of each.
    NoneFresh(Vec<ItemOutcome>),
    /// Another transaction was in the way: the same again may succeed.
    Conflict,
}

/// What a claim holds beside its identity.
#[derive(Debug)]
pub struct Recalled {
    pub(crate) fingerprint: Option<Vec<u8>>,
    pub(crate) value: Option<StoredValue>,
}

/// A transaction in which the message may run, with what becomes of a batch's items, or why it may not.
pub(crate) type Begun<'c, DB> = Result<(Transaction<'c, DB>, <DB as Operations>::Watch, Vec<ItemOutcome>), Verdict>;

/// How far a transaction on a connection outside one has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing was sent, or everything was closed in an orderly way.
    Clean,
    /// Beginning and claiming.
    Beginning,
    /// The message may not run, and a setting of the session may have to be put back.
    Refused,
    /// The body has its transaction.
    Open,
    /// Closed; what sqlx has queued to close its own side may not be sent yet.
    Closed,
}

/// Why a transaction did not end as it should.
#[derive(Debug)]
pub enum Failed {
    /// It was no longer the claim's own; `kept` says that its claim was committed and stays.
    Lost { kept: bool },
    /// The statement that ends it failed.
    AtEnd(sqlx::Error),
}

/// Rolls back what sqlx counts above `depth`, such as a nested transaction that the body has forgotten.
async fn unwind<DB: sqlx::Database>(connection: &mut DB::Connection, depth: usize) -> Result<(), sqlx::Error> {
    while DB::TransactionManager::get_transaction_depth(connection) > depth {
        DB::TransactionManager::rollback(connection).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_timestamp_changes_sides_or_overflows() {
        let century = Duration::from_hours(36_500 * 24);
        let year_1 = Occurred::new(-62_135_596_800_000_000_000, century);
        assert_eq!((year_1.at, year_1.expires), (0, 0));
        let of_1960 = Occurred::new(-315_619_200_000_000_000, century);
        assert_eq!(of_1960.expires, 2_837_980_800_000_000);
        for far in [i128::MAX, 1 << 90] {
            let far = Occurred::new(far, century);
            assert_eq!((i128::from(far.at), i128::from(far.expires)), (Occurred::LATEST, Occurred::LATEST));
        }
        assert_eq!(Occurred::new(i128::MIN, century).at, 0);
        assert_eq!(Occurred::new(1_999, Duration::from_secs(1)), Occurred { at: 1, expires: 1_000_001 });
    }
}
