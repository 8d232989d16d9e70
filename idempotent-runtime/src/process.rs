//! The way of one message: begin, claim, run, verify, commit. Written once, for every handler and every database.

mod connection;
mod failed;

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use sqlx::pool::PoolConnection;
use sqlx::{Connection as _, Pool};
use tracing::Span;

use connection::{Place, acquire, restore, restore_abandoned, restore_kept};
pub(crate) use failed::Refused;
use failed::{Refusal, pause_after};
pub(crate) use failed::{claim_error, lost, table_error, to_caller};

use crate::__private::HandlerError;
use crate::batch::{Batch, Messages};
use crate::catalog::Handler;
use crate::database::{self, Admission, Failure, Progress, Verdict};
use crate::message::{Message, Settled};
use crate::observe::Timer;
use crate::outcome::{Identity, InProgress};
use crate::replay::{Replay, StoredValue};
use crate::run::Run;
use crate::seen::Memory;
use crate::source::Kind;
use crate::store::Settings;
use crate::{Database, Error, Outcome, Source, observe};

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
    /// Begins a transaction or joins the caller's, and claims the message in it.
    ///
    /// # Errors
    ///
    /// The message is not to be processed now: [`settle`](Session::settle) says what becomes of it.
    pub async fn begin(&mut self) -> Result<Run<'_, DB, W>, Refused> {
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
            return Err(Refused(Refusal::Verdict(Verdict::Duplicate)));
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
                Err(Refused(Refusal::Verdict(verdict)))
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

impl<DB: Database> Session<'_, DB, Message> {
    /// Ends a delivery whose body is not to run; nothing where it has to begin again.
    pub async fn settle<T, E: HandlerError>(&mut self, refused: Refused) -> Option<Result<Outcome<T>, E>> {
        self.settle_or_replay(refused, None).await
    }

    /// The same for a handler with `replay`.
    pub async fn settle_or_replay<T, E: HandlerError>(
        &mut self,
        refused: Refused,
        replay: Option<Replay<T>>,
    ) -> Option<Result<Outcome<T>, E>> {
        let consumer = self.work.handler().consumer();
        Some(match (self.conclude(refused).await, replay) {
            (Settled::Replayed(StoredValue(stored)), Some(replay)) => match (replay.from_stored)(&stored) {
                Ok(value) => Ok(Outcome::Replayed(value)),
                Err(error) => Err(to_caller(consumer, Error::Replay(error))),
            },
            (Settled::Replayed(_), None) => unreachable!("only a handler with `replay` asks for stored values"),
            (Settled::Duplicate(duplicate), _) => Ok(Outcome::Duplicate(duplicate)),
            (Settled::Stale(stale), _) => Ok(Outcome::Stale(stale)),
            (Settled::Expired(expired), _) => Ok(Outcome::Expired(expired)),
            (Settled::Failed(error), _) => Err(to_caller(consumer, error)),
            (Settled::Again, _) => return None,
        })
    }

    async fn conclude(&mut self, Refused(refusal): Refused) -> Settled {
        let settled = match refusal {
            Refusal::Again(pause) => {
                self.pause(pause).await;
                return Settled::Again;
            }
            Refusal::Failed(error) => Settled::Failed(error),
            Refusal::Verdict(Verdict::Duplicate) if self.work.recalls() => self.recall().await,
            Refusal::Verdict(verdict) => self.work.judged(verdict),
        };
        if !matches!(settled, Settled::Again) {
            self.recover().await;
        }
        settled
    }

    /// What the claim of a duplicate says.
    async fn recall(&mut self) -> Settled {
        let identity = self.work.identity();
        let connection = match &mut self.link {
            Link::Pool { connection: Some(connection), .. } => &mut **connection,
            Link::Pool { connection: None, .. } => unreachable!("a verdict comes from a connection"),
            Link::Leased(connection) => &mut **connection,
            Link::Bare(connection) | Link::Transaction(connection) => &mut **connection,
        };
        let of = [&*identity.consumer, &*identity.sender, &*identity.key];
        let recalled = DB::recall(connection, &self.settings.statements, of).await;
        match recalled {
            Ok(Some(recalled)) => self.work.recalled(identity, recalled),
            // Somebody has deleted it since.
            Ok(None) if !self.joined && self.claim_pauses.next().is_some() => Settled::Again,
            Ok(None) => Settled::Failed(Error::InProgress(InProgress(identity))),
            Err(error) => Settled::Failed(table_error(error, &self.settings.statements)),
        }
    }
}

impl<DB: Database> Session<'_, DB, Messages> {
    /// Ends a delivery whose body is not to run; nothing where it has to begin again.
    pub async fn settle<T, E: HandlerError>(&mut self, Refused(refusal): Refused) -> Option<Result<Batch<T>, E>> {
        let settled = match refusal {
            Refusal::Again(pause) => {
                self.pause(pause).await;
                return None;
            }
            Refusal::Failed(error) => Err(error),
            Refusal::Verdict(verdict) => self.work.judged(verdict),
        };
        self.recover().await;
        let consumer = self.work.handler().consumer();
        Some(match settled {
            Ok(outcomes) => Ok(Batch { output: None, outcomes }),
            Err(error) => Err(to_caller(consumer, error)),
        })
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
