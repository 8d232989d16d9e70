//! The hooks of a connection, and one handler's view of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnection, SqliteTransactionManager};
use sqlx::{AssertSqlSafe, Executor as _, Sqlite, SqliteTransaction};
use sqlx_core::transaction::TransactionManager as _;

use super::{BEGIN, rebuild};
use crate::database::{Admission, Begun, Failed, Operations as _, Verdict, unwind};

/// What the hooks of one connection know.
#[derive(Debug)]
pub(super) struct Hooks {
    /// Handlers that are running on this connection, one inside the other.
    running: AtomicUsize,
    /// Those of them that have joined their caller's transaction.
    joined: AtomicUsize,
    /// Transactions that were rolled back as a whole.
    rollbacks: AtomicU64,
    /// Commits that were let pass. BEGIN IMMEDIATE makes every one of a handler ask, whatever the body wrote.
    commits: AtomicU64,
    /// The running handler is at its end and commits.
    committing: AtomicBool,
    /// The connection's own `busy_timeout` in milliseconds while a handler's `wait` is in its place, -1 while it is not.
    busy_timeout: AtomicI64,
    /// The caller's transaction was lost inside a joined handler: what stands in its place must not commit.
    doomed: AtomicBool,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            running: AtomicUsize::new(0),
            joined: AtomicUsize::new(0),
            rollbacks: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            committing: AtomicBool::new(false),
            busy_timeout: AtomicI64::new(-1),
            doomed: AtomicBool::new(false),
        }
    }
}

impl Hooks {
    /// Waits so long for SQLite's one writer.
    pub(super) async fn set_busy_timeout(
        &self,
        connection: &mut SqliteConnection,
        wait: Duration,
    ) -> Result<(), sqlx::Error> {
        let own: i64 = sqlx::query_scalar("PRAGMA busy_timeout").fetch_one(&mut *connection).await?;
        self.busy_timeout.store(own, Ordering::Release);
        let wait = wait.as_millis().min(i32::MAX.unsigned_abs().into());
        connection.execute(AssertSqlSafe(format!("PRAGMA busy_timeout = {wait}"))).await.map(drop)
    }

    /// Puts back what [`set_busy_timeout`](Self::set_busy_timeout) has replaced, be it in a future that was dropped.
    pub(super) async fn restore_busy_timeout(&self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let own = self.busy_timeout.load(Ordering::Acquire);
        if own >= 0 {
            connection.execute(AssertSqlSafe(format!("PRAGMA busy_timeout = {own}"))).await?;
            self.busy_timeout.store(-1, Ordering::Release);
        }
        Ok(())
    }

    /// The hooks of this connection, set unless they already are.
    pub(super) async fn of(connection: &mut SqliteConnection) -> Result<Arc<Self>, sqlx::Error> {
        // A connection's hooks live as long as their closures, which hold the `Arc`: a dead `Weak` means that
        // the connection is closed or that somebody else has set hooks since.
        static ALL: LazyLock<Mutex<HashMap<usize, Weak<Hooks>>>> = LazyLock::new(Mutex::default);

        let mut handle = connection.lock_handle().await?;
        let address = handle.as_raw_handle().addr().get();
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hooks) = all.get(&address).and_then(Weak::upgrade) {
            return Ok(hooks);
        }
        let hooks = Arc::new(Self::default());
        let (at_commit, at_rollback) = (Arc::clone(&hooks), Arc::clone(&hooks));
        handle.set_commit_hook(move || at_commit.may_commit());
        handle.set_rollback_hook(move || at_rollback.rolled_back());
        all.retain(|_, hooks| hooks.strong_count() > 0);
        all.insert(address, Arc::downgrade(&hooks));
        Ok(hooks)
    }

    fn may_commit(&self) -> bool {
        let running = self.running.load(Ordering::Acquire);
        let may = !self.doomed.load(Ordering::Acquire) && (running == 0 || self.committing.load(Ordering::Acquire));
        self.commits.fetch_add(u64::from(may), Ordering::AcqRel);
        may
    }

    fn rolled_back(&self) {
        self.rollbacks.fetch_add(1, Ordering::AcqRel);
        // In the middle of a joined handler this is the loss of the caller's transaction. Elsewhere it is the end of
        // what was doomed: the caller's own ROLLBACK, or that of the commit that was just refused.
        self.doomed.store(self.joined.load(Ordering::Acquire) > 0, Ordering::Release);
    }
}

/// One handler's view of its connection's hooks.
#[derive(Debug)]
pub struct Watch {
    pub(super) hooks: Arc<Hooks>,
    rollbacks: u64,
    pub(super) depth: usize,
}

impl Watch {
    pub(super) async fn set(connection: &mut SqliteConnection) -> Result<Self, sqlx::Error> {
        let hooks = Hooks::of(connection).await?;
        hooks.running.fetch_add(1, Ordering::AcqRel);
        Ok(Self { hooks, rollbacks: 0, depth: 0 })
    }

    /// Admits the message in the transaction that has begun; from here on its loss is seen.
    pub(super) async fn admit<'c>(
        mut self,
        mut transaction: SqliteTransaction<'c>,
        admission: Admission<'_>,
    ) -> Result<Begun<'c, Sqlite>, sqlx::Error> {
        self.rollbacks = self.hooks.rollbacks.load(Ordering::Acquire);
        self.depth = SqliteTransactionManager::get_transaction_depth(&transaction);
        self.hooks.joined.fetch_add(usize::from(self.depth > 1), Ordering::AcqRel);
        Ok(match Sqlite::admit(&mut transaction, admission).await? {
            Verdict::New(outcomes) => Ok((transaction, self, outcomes)),
            refused => Err(refused), // dropping the transaction queues its rollback
        })
    }

    pub(super) fn is_lost(&self) -> bool {
        self.hooks.rollbacks.load(Ordering::Acquire) != self.rollbacks
    }

    /// Lets the handler's own COMMIT pass, and says how many have passed before. A savepoint is released, not committed:
    /// it needs no leave, and a handler may be running around it.
    pub(super) fn allow_commit(&self) -> u64 {
        if self.depth == 1 {
            self.hooks.committing.store(true, Ordering::Release);
        }
        self.hooks.commits.load(Ordering::Acquire)
    }

    pub(super) fn has_committed(&self, before: u64) -> bool {
        self.depth > 1 || self.hooks.commits.load(Ordering::Acquire) != before
    }

    /// Ends a transaction that SQLite or the body has rolled back. Nothing of it stays, whatever the body wrote since.
    pub(super) async fn give_up(self, mut transaction: SqliteTransaction<'_>) -> Failed {
        let joined = self.depth > 1;
        let end = async {
            rebuild(&mut transaction, if joined { BEGIN } else { "BEGIN" }).await?;
            unwind::<Sqlite>(&mut transaction, self.depth).await?;
            if SqliteTransactionManager::get_transaction_depth(&transaction) < self.depth {
                return Ok(()); // sqlx has ended the caller's transaction as well
            }
            transaction.rollback().await?;
            // The caller's transaction is gone too. What it does next must not commit without what it did before: it
            // now has a write transaction whose commit the hook refuses, and whose rollback succeeds.
            self.hooks.doomed.store(joined, Ordering::Release);
            Ok(())
        };
        match end.await {
            Ok(()) => Failed::Lost { kept: false },
            Err(error) => Failed::AtEnd(error),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.depth == 1 {
            self.hooks.committing.store(false, Ordering::Release);
        }
        self.hooks.joined.fetch_sub(usize::from(self.depth > 1), Ordering::AcqRel);
        self.hooks.running.fetch_sub(1, Ordering::AcqRel);
    }
}
