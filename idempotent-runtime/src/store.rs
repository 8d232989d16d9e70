//! The claim table and what manages it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sqlx::{Pool, Transaction};

use crate::claim::{Claim, Claimed};
use crate::database::{Failed, NewClaim, Statements, TableName};
use crate::error::TransactionLost;
use crate::outcome::{Duplicate, Identity};
use crate::source::Kind;
use crate::{Adopted, Adoption, Database, Error, Key, PurgeOptions, Purged, Source};
use crate::{adoption, process, purge};

/// How long [`ClaimStore::claim`] keeps a claim unless the builder says otherwise.
const DEFAULT_RETENTION: Duration = Duration::from_hours(7 * 24);
/// The longest retention: a hundred years of 365 days. Longer ones would leave the databases' range of dates.
pub(crate) const MAX_RETENTION: Duration = Duration::from_hours(36_500 * 24);
/// The longest consumer name, in bytes.
const MAX_CONSUMER: usize = 128;

/// The table of claims: what a handler is given instead of a pool when the table has another name, and the way to
/// look at claims and to remove them.
///
/// Cloning it is cheap.
#[derive(Debug)]
pub struct ClaimStore<DB: Database> {
    pool: Pool<DB>,
    settings: Arc<Settings>,
}

#[derive(Debug)]
struct Settings {
    statements: Statements,
    retention: Duration,
}

/// Builds a [`ClaimStore`].
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct ClaimStoreBuilder<DB: Database> {
    pool: Pool<DB>,
    table: Cow<'static, str>,
    retention: Duration,
}

impl<DB: Database> ClaimStoreBuilder<DB> {
    /// The claim table: `name` or `schema.name`, plain identifiers. Default `processed_messages`.
    pub fn table(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.table = name.into();
        self
    }

    /// How long [`ClaimStore::claim`] keeps a claim. Handlers have their own, from the attribute. Default 7 days.
    pub const fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// The store.
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] for a table name that is not made of plain identifiers, and for a retention of zero or of
    /// more than 36500 days.
    pub fn build(self) -> Result<ClaimStore<DB>, Error> {
        let statements = DB::statements(&TableName::parse(&self.table)?);
        if self.retention.is_zero() || self.retention > MAX_RETENTION {
            return Err(Error::Configuration(format!(
                "a retention of {:?} is not possible: choose more than zero and at most 36500 days",
                self.retention
            )));
        }
        Ok(ClaimStore { pool: self.pool, settings: Arc::new(Settings { statements, retention: self.retention }) })
    }
}

impl<DB: Database> Clone for ClaimStore<DB> {
    fn clone(&self) -> Self {
        Self { pool: self.pool.clone(), settings: Arc::clone(&self.settings) }
    }
}

impl<DB: Database> ClaimStore<DB> {
    /// The store over the table `processed_messages`.
    #[must_use]
    pub fn new(pool: Pool<DB>) -> Self {
        let statements = DB::default_statements().clone();
        Self { pool, settings: Arc::new(Settings { statements, retention: DEFAULT_RETENTION }) }
    }

    /// A store with settings of its own.
    pub fn builder(pool: Pool<DB>) -> ClaimStoreBuilder<DB> {
        ClaimStoreBuilder { pool, table: Cow::Borrowed(TableName::DEFAULT), retention: DEFAULT_RETENTION }
    }

    /// Connects with sqlx's default pool options.
    ///
    /// # Errors
    ///
    /// [`Error::Database`] where the address is malformed or nobody answers.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Ok(Self::new(Pool::connect(url).await?))
    }

    /// The pool that the store was made with.
    #[must_use]
    pub const fn pool(&self) -> &Pool<DB> {
        &self.pool
    }

    pub(crate) fn statements(&self) -> &Statements {
        &self.settings.statements
    }

    /// Creates this store's table, or brings it up to date: [`migrate`](crate::migrate()) for a table of any name.
    ///
    /// # Errors
    ///
    /// See [`migrate`](crate::migrate()).
    pub async fn migrate(&self) -> Result<(), Error> {
        DB::migrate(&self.pool, &self.settings.statements.table).await
    }

    /// Claims a message inside a transaction of the application's own: what the attribute does, without the attribute.
    ///
    /// After [`Claimed::New`] do the work in the same transaction and end it with [`commit`](crate::commit()). It
    /// waits while another transaction holds the same claim uncommitted.
    ///
    /// ```
    /// use idempotent_runtime::{Claimed, ClaimStore, Key, commit};
    ///
    /// # #[cfg(feature = "sqlite")]
    /// async fn on_message(store: &ClaimStore<sqlx::Sqlite>, id: &str) -> Result<(), idempotent_runtime::Error> {
    ///     let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await?;
    ///     if let Claimed::New(_) = store.claim(&mut tx, "mail.welcome", &Key::new(id)?).await? {
    ///         sqlx::query("INSERT INTO outbox (mail) VALUES ('welcome')").execute(&mut *tx).await?;
    ///         commit(tx).await?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotMigrated`], [`Error::InProgress`], [`Error::Database`]; [`Error::Configuration`] for a consumer that is
    /// not 1 to 128 visible ASCII characters.
    pub async fn claim(&self, tx: &mut Transaction<'_, DB>, consumer: &str, key: &Key) -> Result<Claimed, Error> {
        if consumer.is_empty() || consumer.len() > MAX_CONSUMER || !consumer.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err(Error::Configuration(format!(
                "the consumer name {consumer:?} is not possible: choose 1 to {MAX_CONSUMER} visible ASCII characters"
            )));
        }
        let identity = Identity {
            consumer: Cow::Owned(consumer.to_owned()),
            sender: Cow::Owned(key.sender().to_owned()),
            key: Cow::Owned(key.key().to_owned()),
        };
        let Settings { statements, retention } = &*self.settings;
        let claimed = DB::claim(&mut **tx, NewClaim { statements, identity: &identity, retention: *retention }).await;
        if claimed.map_err(|error| process::claim_error(error, statements, &identity))? {
            Ok(Claimed::New(Claim(identity)))
        } else {
            Ok(Claimed::Duplicate(Duplicate(identity)))
        }
    }

    /// A source for handlers that joins the caller's transaction, with this store's table.
    ///
    /// Passing `&mut tx` itself joins it with the default table.
    #[must_use]
    pub fn join<'c>(&'c self, tx: &'c mut Transaction<'_, DB>) -> Source<'c, DB> {
        Source { kind: Kind::Transaction(&mut **tx), statements: self.statements() }
    }

    /// When the claim of a message expires, if the message has one. All three in their stored forms, as
    /// [`Claim`](crate::Claim) and [`Duplicate`](crate::Duplicate) give them; the sender is empty where the handler names none.
    ///
    /// # Errors
    ///
    /// [`Error::NotMigrated`], [`Error::Database`].
    pub async fn find(&self, consumer: &str, sender: &str, key: &str) -> Result<Option<SystemTime>, Error> {
        let found = DB::find(&self.pool, self.statements(), [consumer, sender, key]).await;
        let millis = found.map_err(|error| process::table_error(error, self.statements()))?;
        Ok(millis.map(time))
    }

    /// Removes the claim of a message, so that its next delivery runs: for a message whose effect was undone by hand,
    /// or a dead letter to be replayed. `false` if it had none. All three in their stored forms.
    ///
    /// # Errors
    ///
    /// [`Error::NotMigrated`], [`Error::Database`].
    pub async fn forget(&self, consumer: &str, sender: &str, key: &str) -> Result<bool, Error> {
        let forgotten = DB::forget(&self.pool, self.statements(), [consumer, sender, key]).await;
        forgotten.map_err(|error| process::table_error(error, self.statements()))
    }

    /// Deletes the claims that are past their expiry and a margin, an hour by default, both by the database's clock.
    ///
    /// It does so in batches. Each is a transaction of its own, and locks what it deletes and nothing else until it is
    /// through. What another transaction has locked is passed over, so any number of purges may run at once, beside any
    /// number of consumers: none waits for another's lock, and each claim is deleted, and counted, once.
    ///
    /// MariaDB has to be 10.6, MySQL 8.0 or newer, for `SKIP LOCKED`, and may not log statements (`binlog_format`) in place of rows.
    /// On PostgreSQL the account needs the right to UPDATE the table too, which locking its rows asks for. Engines of its
    /// protocol need its `ctid`, which CockroachDB and YugabyteDB do not have.
    ///
    /// Dropping the future is safe: a batch in flight is deleted or not, and nothing is left open. A batch
    /// that fails with a transient error is tried again up to five times. The [`Janitor`](crate::Janitor) purges
    /// at intervals.
    ///
    /// ```
    /// use idempotent_runtime::{ClaimStore, Error, PurgeEnd, PurgeOptions};
    ///
    /// # #[cfg(feature = "sqlite")]
    /// async fn every_night(store: &ClaimStore<sqlx::Sqlite>) -> Result<(), Error> {
    ///     let purged = store.purge(PurgeOptions::new()).await?;
    ///     if purged.end == PurgeEnd::OutOfTime {
    ///         eprintln!("{} claims deleted, and more are left", purged.deleted);
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] for options that cannot be meant, before any SQL is run; [`Error::NotMigrated`],
    /// [`Error::Database`]. What earlier batches have deleted stays deleted.
    pub async fn purge(&self, options: PurgeOptions) -> Result<Purged, Error> {
        purge::purge(self, &options).await
    }

    /// Makes claims of what hand-written code has noted in a table of its own, in the stored form that the handler's macro
    /// gives the same ids. Nothing is deleted or changed, so it may run again at any time.
    ///
    /// It is one step of a procedure that lets no duplicate pass while both kinds of code run side by side, which
    /// [`guide::adoption`](crate::guide::adoption) describes: on its own it cannot know what the old code does next.
    ///
    /// ```
    /// use idempotent_runtime::{Adopted, Adoption, ClaimStore, Error};
    ///
    /// # #[cfg(feature = "sqlite")]
    /// async fn take_over(store: &ClaimStore<sqlx::Sqlite>) -> Result<Adopted, Error> {
    ///     let old = Adoption::of_table("processed_events").id_column("event_id").handler("billing.grant-credit");
    ///     store.adopt(old.time_column("processed_at")).await
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] where the table, a column or a handler is missing or does not fit, [`Error::ConsumerCollision`],
    /// [`Error::NotMigrated`], [`Error::Database`]. What was copied until then stays.
    pub async fn adopt(&self, adoption: Adoption) -> Result<Adopted, Error> {
        adoption::adopt(self, &adoption).await
    }
}

/// From Unix milliseconds.
pub(crate) fn time(millis: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis.max(0).unsigned_abs())
}

/// Commits a transaction that the application owns, if it is still alive: use it where handlers or
/// [`ClaimStore::claim`] have joined one.
///
/// sqlx's own `commit()` returns `Ok` for a PostgreSQL transaction that an error has aborted, although the server
/// rolls it back.
///
/// # Errors
///
/// [`Error::TransactionLost`] if the transaction was aborted or rolled back, [`Error::CommitUnknown`] if the reply to COMMIT
/// was lost, [`Error::Database`] for a commit that was refused. Except after `CommitUnknown` nothing was committed.
pub async fn commit<DB: Database>(tx: Transaction<'_, DB>) -> Result<(), Error> {
    DB::commit_own(tx).await.map_err(|failed| match failed {
        Failed::Lost { kept } => Error::TransactionLost(TransactionLost { claim: None, kept }),
        Failed::AtEnd(error) => Error::at_commit(error),
    })
}
