//! The way of one message: begin, claim, run, verify, commit. Written once, for every handler and every database.

mod connection;
mod failed;

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use sqlx::pool::PoolConnection;
use sqlx::{Connection as _, Pool};
use tracing::Span;

use connection::{Place, acquire, restore, restore_abandoned, restore_kept};
use failed::pause_after;
pub(crate) use failed::{Refusal, Refused};
pub(crate) use failed::{claim_error, lost, table_error, to_caller};

use crate::batch::Messages;
use crate::catalog::Handler;
use crate::database::{self, Admission, Failure, Progress, Recalled, Verdict};
use crate::message::Message;
use crate::observe::Timer;
use crate::outcome::{Identity, InProgress};
use crate::run::Run;
use crate::seen::Memory;
use crate::source::Kind;
use crate::store::Settings;
use crate::{Database, Error, Source, observe};

/// How often begin and claim are tried again after a conflict. The body has not run, so this needs nobody's leave.
const CLAIM_RETRIES: usize = 10;
/// The pauses before that, at first and at most, each up to twice as long by chance.
const CLAIM_PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(100)];
/// The pauses before the body runs again.
const RUN_PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_secs(1)];

/// What one delivery is about: one message, or a batch.
#[expect(private_interfaces, reason = "sealed: not part of the public interface")]
pub trait Work: Send + Sync {
    /// Whose it is.
    fn handler(&self) -> &'static Handler;

    /// Why it is not even tried.
    fn take_refusal(&mut self) -> Option<Error>;

    /// What has to hold before the body runs.
    fn admission<'a>(&'a self, settings: &'a Settings) -> Admission<'a>;

    /// Around its body and commit.
    fn span(&self) -> Span;

    /// What to call it in an error.
    fn identity(&self) -> Identity;

    /// Where it is remembered once it is committed.
    fn cached<'a>(&'a self, settings: &'a Settings) -> Option<Memory<'a>>;

    /// How it ends without its body.
    type Settled: Send;

    /// By an error.
    fn failed(error: Error) -> Self::Settled;

    /// By what the database has judged.
    fn judged(&self, verdict: Verdict) -> Self::Settled;

    /// Whether a duplicate has to look at what its claim holds.
    fn recalls(&self) -> bool {
        false
    }

    /// By what the claim of a duplicate holds.
    fn recalled(&self, identity: Identity, _recalled: Recalled) -> Self::Settled {
        Self::failed(Error::InProgress(InProgress(identity)))
    }
}

/// One delivery on its way through a handler. Outlives the transaction, so that it can bring the connection back.
pub struct Session<'c, DB: Database, W> {
    work: W,
    link: Link<'c, DB>,
    settings: &'c Settings,
    progress: Progress,
    /// Whether the handler works in its caller's transaction.
    joined: bool,
    /// The pauses that are left, for conflicts while claiming and for the body.
    claim_pauses: ExponentialBackoff,
    run_pauses: ExponentialBackoff,
    /// A connection of the pool was dead: others may be.
    pings: bool,
}

fn pauses([first, longest]: [Duration; 2], times: usize) -> ExponentialBackoff {
    let pauses = ExponentialBuilder::new().with_min_delay(first).with_max_delay(longest).with_max_times(times);
    pauses.with_jitter().build()
}

enum Link<'c, DB: Database> {
    Pool { pool: &'c Pool<DB>, connection: Option<PoolConnection<DB>> },
    Leased(&'c mut PoolConnection<DB>),
    Transaction(&'c mut DB::Connection),
    Bare(&'c mut DB::Connection),
}

impl Message {
    /// The start of its way. Runs no SQL yet.
    #[must_use]
    pub fn open<DB: Database>(self, source: Source<'_, DB>) -> Session<'_, DB, Self> {
        open(self, source)
    }
}

impl Messages {
    /// The start of their way. Runs no SQL yet.
    #[must_use]
    pub fn open<DB: Database>(self, source: Source<'_, DB>) -> Session<'_, DB, Self> {
        open(self, source)
    }
}

fn open<DB: Database, W: Work>(work: W, source: Source<'_, DB>) -> Session<'_, DB, W> {
    let Source { kind, settings } = source;
    let link = match kind {
        Kind::Pool(pool) => Link::Pool { pool, connection: None },
        Kind::Leased(connection) => Link::Leased(connection),
        Kind::Transaction(connection) => Link::Transaction(connection),
        Kind::Bare(connection) => Link::Bare(connection),
    };
    let claim_pauses = pauses(CLAIM_PAUSES, CLAIM_RETRIES);
    let run_pauses = pauses(RUN_PAUSES, work.handler().spec().retry);
    Session { work, link, settings, progress: Progress::Clean, joined: false, claim_pauses, run_pauses, pings: false }
}

impl<DB: Database, W: Work> Session<'_, DB, W> {
    /// Begins a transaction or joins the caller's, and claims the message in it. Takes why it could not before, and settles
    /// that first: one future for both, since each that a handler awaits is compiled in each handler.
    ///
    /// # Errors
    ///
    /// The message is not to be processed now. If it is not settled yet, it is to begin again.
    pub async fn begin(&mut self, refusal: Option<Refusal>) -> Result<Run<'_, DB, W>, Refused<W::Settled>> {
        if let Some(refusal) = refusal
            && let Some(settled) = self.conclude(refusal).await
        {
            return Err(Refused::Settled(settled, self.work.handler().consumer()));
        }
        self.attempt().await.map_err(Refused::Yet)
    }

    async fn attempt(&mut self) -> Result<Run<'_, DB, W>, Refusal> {
        if let Some(error) = self.work.take_refusal() {
            return Refusal::failed(error);
        }
        self.recover().await;
        let Self { work, link, settings, progress, joined, claim_pauses, run_pauses, pings } = self;
        let (work, settings): (&W, &Settings) = (work, settings);
        let consumer = work.handler().consumer();
        let seen = if matches!(link, Link::Pool { .. }) { work.cached(settings) } else { None };
        if seen.is_some_and(|memory| memory.is_seen()) {
            observe::seen(consumer);
            return Err(Refusal::Verdict(Verdict::Duplicate));
        }
        let timer = Timer::start();
        let admission = work.admission(settings);
        let of_transaction = matches!(link, Link::Transaction(_));
        let (connection, place) = match link {
            Link::Pool { pool, connection } => match acquire(pool, *pings).await {
                Ok(acquired) => (&mut **connection.insert(acquired), Place::Own { reclaimable: true }),
                Err(error) => return Refusal::failed(Error::Database(error)),
            },
            Link::Leased(connection) => {
                let place = Place::of(connection.is_in_transaction());
                (&mut ***connection, place)
            }
            Link::Bare(connection) => {
                let place = Place::of(connection.is_in_transaction());
                (&mut **connection, place)
            }
            // A drop that sqlx has mistaken for that of the whole transaction has ended it.
            Link::Transaction(connection) if !connection.is_in_transaction() => {
                return Refusal::failed(lost(admission.claim.map(|claim| claim.identity), false));
            }
            Link::Transaction(connection) => (&mut **connection, Place::Callers),
        };
        *joined = matches!(place, Place::Callers);
        let joined = *joined;
        if let (true, Some(isolation)) = (joined, admission.isolation) {
            return Refusal::failed(Error::isolated(consumer, isolation));
        }
        let begun = match place {
            Place::Callers => DB::join(connection, admission).await,
            Place::Own { reclaimable } => {
                *progress = Progress::Beginning;
                DB::begin(connection, admission, reclaimable).await
            }
        };
        timer.claimed(consumer);
        match begun {
            Ok(Ok((transaction, watch, outcomes))) => {
                #[cfg(feature = "testing")]
                let outcomes = crate::testing::withheld(outcomes);
                if !joined {
                    *progress = Progress::Open;
                }
                let span = work.span();
                Ok(Run { transaction, watch, work, outcomes, settings, seen, progress, span, timer: Timer::start() })
            }
            Ok(Err(verdict)) => {
                if let (Verdict::Duplicate, Some(memory)) = (&verdict, seen) {
                    memory.keep();
                }
                match place {
                    Place::Own { reclaimable: true } => *progress = Progress::Refused,
                    Place::Own { reclaimable: false } => *progress = Progress::Closed,
                    Place::Callers => {}
                }
                if matches!(verdict, Verdict::Conflict)
                    && !joined
                    && let Some(pause) = claim_pauses.next()
                {
                    observe::conflict(consumer);
                    return Refusal::again(pause);
                }
                Err(Refusal::Verdict(verdict))
            }
            // The caller's transaction is not there any more.
            Err(sqlx::Error::BeginFailed) if of_transaction => {
                Refusal::failed(lost(admission.claim.map(|claim| claim.identity), false))
            }
            // sqlx has counted one on a connection that has none: bring it back, and begin on it.
            Err(sqlx::Error::BeginFailed) if joined => match claim_pauses.next() {
                Some(pause) => {
                    *progress = Progress::Open;
                    Refusal::again(pause)
                }
                None => Refusal::failed(Error::Database(sqlx::Error::BeginFailed)),
            },
            Err(error) => {
                *pings |= database::failure_at_commit(&error) == Failure::Unknown;
                let claims = admission.claim.is_some() || admission.position.is_some() || admission.batch.is_some();
                let error = if claims {
                    claim_error(error, &settings.statements, &work.identity())
                } else {
                    Error::Database(error)
                };
                match pause_after(&error, claim_pauses, run_pauses, consumer).filter(|_| !joined) {
                    Some(pause) => Refusal::again(pause),
                    None => Refusal::failed(error),
                }
            }
        }
    }

    /// How the delivery ends; nothing where it is to begin again, after a pause.
    async fn conclude(&mut self, refusal: Refusal) -> Option<W::Settled> {
        let settled = match refusal {
            Refusal::Again(pause) => {
                self.pause(pause).await;
                return None;
            }
            Refusal::Failed(error) => W::failed(error),
            Refusal::Verdict(Verdict::Duplicate) if self.work.recalls() => self.recall().await?,
            Refusal::Verdict(verdict) => self.work.judged(verdict),
        };
        self.recover().await;
        Some(settled)
    }

    /// What the claim of a duplicate says; nothing where somebody has deleted it since.
    async fn recall(&mut self) -> Option<W::Settled> {
        let identity = self.work.identity();
        let connection = match &mut self.link {
            Link::Pool { connection: Some(connection), .. } => &mut **connection,
            Link::Pool { connection: None, .. } => unreachable!("a verdict comes from a connection"),
            Link::Leased(connection) => &mut **connection,
            Link::Bare(connection) | Link::Transaction(connection) => &mut **connection,
        };
        let of = [&*identity.consumer, &*identity.sender, &*identity.key];
        let recalled = DB::recall(connection, &self.settings.statements, of).await;
        Some(match recalled {
            Ok(Some(recalled)) => self.work.recalled(identity, recalled),
            Ok(None) if !self.joined && self.claim_pauses.next().is_some() => return None,
            Ok(None) => W::failed(Error::InProgress(InProgress(identity))),
            Err(error) => W::failed(table_error(error, &self.settings.statements)),
        })
    }

    /// Others may use the connection meanwhile.
    async fn pause(&mut self, pause: Duration) {
        self.recover().await;
        sqlx_core::rt::sleep(pause).await;
    }

    /// Whether the body may run once more after a transient error. Brings the connection back, and pauses.
    pub async fn runs_again(&mut self) -> bool {
        if self.joined {
            return false; // what is lost may be its caller's transaction
        }
        let Some(pause) = self.run_pauses.next() else { return false };
        observe::retried(self.work.handler().consumer());
        self.pause(pause).await;
        true
    }

    /// Ends the delivery: brings the connection back if its transaction did not end in an orderly way.
    pub async fn close<R>(&mut self, outcome: R) -> R {
        self.recover().await;
        outcome
    }

    /// Until this is through, the session keeps connection and progress, so that dropping it here does the rest.
    async fn recover(&mut self) {
        match &mut self.link {
            Link::Pool { connection: Some(connection), .. } => {
                restore(connection, self.progress).await;
                if let Link::Pool { connection, .. } = &mut self.link {
                    drop(connection.take());
                }
            }
            Link::Leased(connection) if self.progress != Progress::Clean => {
                if restore_kept::<DB>(connection, self.progress).await.is_err() {
                    connection.close_on_drop();
                }
            }
            Link::Bare(connection) if self.progress != Progress::Clean => {
                // Whatever is wrong with the caller's connection, its next statement says so.
                let _ = restore_kept::<DB>(connection, self.progress).await;
            }
            Link::Pool { connection: None, .. } | Link::Leased(_) | Link::Bare(_) | Link::Transaction(_) => {}
        }
        self.progress = Progress::Clean;
    }
}

impl<DB: Database, W> Drop for Session<'_, DB, W> {
    /// The future was dropped, or the body has panicked.
    fn drop(&mut self) {
        let progress = self.progress;
        match &mut self.link {
            Link::Pool { connection, .. } => match connection.take() {
                Some(mut connection) if DB::SURVIVES_CANCELLATION && progress != Progress::Clean => {
                    // sqlx spawns the same way when a connection is dropped.
                    drop(sqlx_core::rt::spawn(async move { restore_abandoned(&mut connection, progress).await }));
                }
                Some(mut connection) if DB::is_tainted(&connection, progress) => connection.close_on_drop(),
                _ => {}
            },
            Link::Leased(connection) if DB::CLOSES_LEASED && DB::is_tainted(connection, progress) => {
                connection.close_on_drop();
            }
            Link::Leased(_) | Link::Bare(_) | Link::Transaction(_) => {}
        }
    }
}
