//! The claim table and what manages it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sqlx::{Pool, Transaction};

use crate::claim::{Claim, Claimed};
use crate::database::{Admission, Failed, NewClaim, Statements, TableName, Verdict};
use crate::error::TransactionLost;
use crate::outcome::{Duplicate, Identity};
use crate::run::{refused_commit, refuses_commit};
use crate::seen::Seen;
use crate::source::Kind;
use crate::{Adopted, Adoption, Database, Error, Key, PurgeOptions, Purged, Source};
use crate::{adoption, process, purge};

/// How long [`ClaimStore::claim`] keeps a claim unless the builder says otherwise.
const DEFAULT_RETENTION: Duration = Duration::from_hours(7 * 24);
/// The longest retention: a hundred years of 365 days. Longer ones would leave the databases' range of dates.
pub(crate) const MAX_RETENTION: Duration = Duration::from_hours(36_500 * 24);
/// The longest value that `replay` stores, in bytes of JSON, unless the builder says otherwise.
const DEFAULT_MAX_STORED_VALUE: usize = 1024 * 1024;
/// How long the seen cache remembers a message unless the builder says otherwise, and at most.
const DEFAULT_SEEN_CACHE_TTL: Duration = Duration::from_mins(1);
const MAX_SEEN_CACHE_TTL: Duration = Duration::from_hours(1);
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

/// What handlers and their sources need to know of a store.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) statements: Statements,
    pub(crate) max_stored_value: usize,
    pub(crate) seen: Option<Seen>,
    retention: Duration,
}

impl Settings {
    /// Of the default table.
    pub(crate) fn of<DB: Database>() -> Self {
        Self {
            statements: DB::statements(&TableName::default()),
            max_stored_value: DEFAULT_MAX_STORED_VALUE,
            seen: None,
            retention: DEFAULT_RETENTION,
        }
    }
}

/// Builds a [`ClaimStore`].
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct ClaimStoreBuilder<DB: Database> {
    pool: Pool<DB>,
    table: Cow<'static, str>,
    retention: Duration,
    max_stored_value: usize,
    seen_cache: usize,
    seen_cache_ttl: Duration,
    named_statements: bool,
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

    /// Remembers so many processed messages in memory, so that a storm of duplicates costs the database nothing. Default 0:
    /// none. At most about 600 bytes each, mostly far less.
    ///
    /// A message is remembered once its claim is known to be committed, for
    /// [`seen_cache_ttl`](Self::seen_cache_ttl). Handlers with `replay` or `fingerprint`, and handlers that join a transaction or
    /// are given a connection, ask the database each time. [`ClaimStore::forget`] reaches the cache of its own store and its
    /// clones; another process may take the message for a duplicate until the time is over.
    pub const fn seen_cache(mut self, messages: usize) -> Self {
        self.seen_cache = messages;
        self
    }

    /// How long a processed message is remembered in memory. Default 60 seconds.
    pub const fn seen_cache_ttl(mut self, time_to_live: Duration) -> Self {
        self.seen_cache_ttl = time_to_live;
        self
    }

    /// Whether this library's statements are prepared under a name and kept by the server, as sqlx does unless it is told
    /// otherwise. Default `true`.
    ///
    /// `false` is for a pooler in transaction mode that hands the names of one client's statements to another: PgBouncer
    /// before 1.21, or with `max_prepared_statements = 0`. sqlx's `statement_cache_capacity(0)` is not enough. The application's own
    /// statements need the same: `sqlx::query(..).persistent(false)` inside a transaction, or `sqlx::raw_sql`. Handlers are then
    /// given the store, or `store.join(&mut tx)`. A message takes one round trip more.
    pub const fn named_statements(mut self, named: bool) -> Self {
        self.named_statements = named;
        self
    }

    /// The longest value that a handler with `replay` stores, in bytes of its JSON form. Default 1 MiB (1048576 bytes). A
    /// longer one is [`ReplayError::TooLarge`](crate::ReplayError::TooLarge), and its transaction is rolled back. MySQL and MariaDB also
    /// refuse what is larger than their `max_allowed_packet`, 16 MiB unless configured.
    pub const fn max_stored_value(mut self, bytes: usize) -> Self {
        self.max_stored_value = bytes;
        self
    }

    /// The store.
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] for a table name that is not made of plain identifiers, for a retention of zero or of more
    /// than 36500 days, and for a seen cache that would remember messages for no time or for more than an hour.
    pub fn build(self) -> Result<ClaimStore<DB>, Error> {
        let mut statements = DB::statements(&TableName::parse(&self.table)?);
        statements.named = self.named_statements;
        if self.retention.is_zero() || self.retention > MAX_RETENTION {
            return Err(Error::Configuration(format!(
                "a retention of {:?} is not possible: choose more than zero and at most 36500 days",
                self.retention
            )));
        }
        let Self { pool, retention, max_stored_value, seen_cache, seen_cache_ttl, .. } = self;
        if seen_cache > 0 && (seen_cache_ttl.is_zero() || seen_cache_ttl > MAX_SEEN_CACHE_TTL) {
            return Err(Error::Configuration(format!(
                "a seen cache cannot remember messages for {seen_cache_ttl:?}: choose more than zero and at most an hour, \
                 since another process may forget them meanwhile"
            )));
        }
        let seen = (seen_cache > 0).then(|| Seen::new(seen_cache, seen_cache_ttl));
        Ok(ClaimStore { pool, settings: Arc::new(Settings { statements, max_stored_value, seen, retention }) })
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
        Self { pool, settings: Arc::new(Settings::of::<DB>()) }
    }

    /// A store with settings of its own.
    pub fn builder(pool: Pool<DB>) -> ClaimStoreBuilder<DB> {
        ClaimStoreBuilder {
            pool,
            table: Cow::Borrowed(TableName::DEFAULT),
            retention: DEFAULT_RETENTION,
            max_stored_value: DEFAULT_MAX_STORED_VALUE,
            seen_cache: 0,
            seen_cache_ttl: DEFAULT_SEEN_CACHE_TTL,
            named_statements: true,
        }
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

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
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
        let Settings { statements, retention, .. } = &*self.settings;
        let admission = Admission {
            statements,
            claim: Some(NewClaim { identity: &identity, fingerprint: None }),
            occurred: None,
            position: None,
            batch: None,
            retention: *retention,
            wait: None,
            isolation: None,
        };
        let verdict = DB::admit(&mut **tx, admission).await;
        match verdict.map_err(|error| process::claim_error(error, statements, &identity))? {
            Verdict::New(_) => Ok(Claimed::New(Claim(identity))),
            _ => Ok(Claimed::Duplicate(Duplicate(identity))), // nothing else was asked
        }
    }

    /// A source for handlers that joins the caller's transaction, with this store's table.
    ///
    /// Passing `&mut tx` itself joins it with the default table.
    #[must_use]
    pub fn join<'c>(&'c self, tx: &'c mut Transaction<'_, DB>) -> Source<'c, DB> {
        Source { kind: Kind::Transaction(&mut **tx), settings: self.settings() }
    }

    /// When the claim of a message expires, if the message has one. All three in their stored forms, as
    /// [`Claim`](crate::Claim) and [`Duplicate`](crate::Duplicate) give them; the sender is empty where the handler names none.
    /// Of a key of one part, `Key::new(&part)?.key()` is the stored form whatever its characters and length; of the template
    /// `"{a}:{b}"`, `Key::from_parts(&[&a, &b])?.key()`.
    ///
    /// # Errors
    ///
    /// [`Error::NotMigrated`], [`Error::Database`].
    pub async fn find(&self, consumer: &str, sender: &str, key: &str) -> Result<Option<SystemTime>, Error> {
        let found = DB::find(&self.pool, self.statements(), [consumer, sender, key]).await;
        let millis = found.map_err(|error| process::table_error(error, self.statements()))?;
        Ok(millis.map(time))
    }

    /// The number that was applied last to an entity, by a handler with `sequence`: where a consumer of a stream goes on
    /// after a restart. `None` if nothing was applied yet.
    ///
    /// All three in their stored forms: letters, digits and most punctuation stand as they are; of a template with literal
    /// text such as `"{topic}/{partition}"`, that punctuation is percent-encoded inside values. Of an entity of one part,
    /// `Key::new(&part)?.key()` is the stored form whatever its characters and length.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// async fn resume(store: &idempotent_runtime::ClaimStore<sqlx::Sqlite>) -> Result<i64, idempotent_runtime::Error> {
    ///     let applied = store.position("warehouse.stock", "", "orders/0").await?;
    ///     Ok(applied.map_or(0, |offset| offset + 1)) // the first offset to ask the broker for
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotMigrated`], [`Error::Database`].
    pub async fn position(&self, consumer: &str, sender: &str, entity: &str) -> Result<Option<i64>, Error> {
        let position = DB::position(&self.pool, self.statements(), [consumer, sender, entity]).await;
        position.map_err(|error| process::table_error(error, self.statements()))
    }

    /// Removes the claim of a message, so that its next delivery runs: for a message whose effect was undone by hand,
    /// or a dead letter to be replayed. `false` if it had none. All three in their stored forms, which [`Key`] makes: see
    /// [`find`](Self::find).
    ///
    /// The claim of a delivery that is running is not there yet on PostgreSQL, and waited for on the others. What this says
    /// is so in either case: after `true` the next delivery runs, after `false` the delivery that was running counts.
    ///
    /// # Errors
    ///
    /// [`Error::NotMigrated`], [`Error::Database`].
    pub async fn forget(&self, consumer: &str, sender: &str, key: &str) -> Result<bool, Error> {
        let forgotten = DB::forget(&self.pool, self.statements(), [consumer, sender, key]).await;
        if let Some(seen) = &self.settings.seen {
            let [consumer, sender, key] = [consumer, sender, key].map(|part| Cow::Owned(part.to_owned()));
            seen.forget(&Identity { consumer, sender, key });
        }
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
    if refuses_commit() {
        tx.rollback().await.map_err(Error::at_commit)?;
        return Err(refused_commit());
    }
    DB::commit_own(tx).await.map_err(|failed| match failed {
        Failed::Lost { kept } => Error::TransactionLost(TransactionLost { claim: None, kept }),
        Failed::AtEnd(error) => Error::at_commit(error),
    })
}
