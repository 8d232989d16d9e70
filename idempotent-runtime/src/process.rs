//! The way of one message: begin, claim, run, verify, commit. Written once, for every handler and every database.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use sqlx::pool::PoolConnection;
use sqlx::{Connection as _, Pool};
use tracing::Span;

use crate::__private::HandlerError;
use crate::batch::{Batch, Messages};
use crate::catalog::Handler;
use crate::database::{self, Admission, Failure, Progress, Statements, Verdict};
use crate::error::TransactionLost;
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
/// How long bringing back a connection may take before it is closed instead.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(5);

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

/// Why a delivery does not come to its body.
#[derive(Debug)]
pub struct Refused(Refusal);

#[derive(Debug)]
enum Refusal {
    /// The database has judged so.
    Verdict(Verdict),
    /// It failed.
    Failed(Error),
    /// A conflict kept it from its claim; it is tried again after this pause.
    Again(Duration),
}

impl Refusal {
    const fn failed<R>(error: Error) -> Result<R, Refused> {
        Err(Refused(Self::Failed(error)))
    }

    const fn again<R>(pause: Duration) -> Result<R, Refused> {
        Err(Refused(Self::Again(pause)))
    }
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
                Err(error) => Err(failure(consumer, Error::Replay(error))),
            },
            (Settled::Replayed(_), None) => unreachable!("only a handler with `replay` asks for stored values"),
            (Settled::Duplicate(duplicate), _) => Ok(Outcome::Duplicate(duplicate)),
            (Settled::Stale(stale), _) => Ok(Outcome::Stale(stale)),
            (Settled::Expired(expired), _) => Ok(Outcome::Expired(expired)),
            (Settled::Failed(error), _) => Err(failure(consumer, error)),
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
            Err(error) => Err(failure(consumer, error)),
        })
    }
}

/// Whose transaction the handler works in.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// The caller's, behind a savepoint.
    Callers,
    /// Its own. If its future is dropped, a `reclaimable` connection is restored or closed before anybody else uses it;
    /// the caller may go on with one that it has kept.
    Own { reclaimable: bool },
}

impl Place {
    /// On a connection that the caller has kept.
    const fn of(in_transaction: bool) -> Self {
        if in_transaction { Self::Callers } else { Self::Own { reclaimable: false } }
    }
}

/// What the handler returns for an error of the library's own.
pub(crate) fn failure<E: HandlerError>(consumer: &'static str, error: Error) -> E {
    observe::failed(consumer, error.kind());
    E::from_error(error)
}

pub(crate) fn lost(claim: Option<&Identity>, kept: bool) -> Error {
    let lost = TransactionLost { claim: claim.cloned(), kept };
    observe::lost(&lost);
    Error::TransactionLost(lost)
}

/// Without `test_before_acquire` a pool hands out what has died in it, for each delivery one. One is found by the request
/// that begins; after that the rest is asked for a sign of life first, so that any number of them costs one attempt.
async fn acquire<DB: Database>(pool: &Pool<DB>, pings: bool) -> Result<PoolConnection<DB>, sqlx::Error> {
    loop {
        let mut connection = pool.acquire().await?;
        if !pings || connection.ping().await.is_ok() {
            return Ok(connection);
        }
        connection.close_on_drop();
    }
}

/// A connection must not go back to the pool with a transaction or a setting that others would inherit.
async fn restore<DB: Database>(connection: &mut PoolConnection<DB>, progress: Progress) {
    if DB::is_tainted(connection, progress) {
        let restored = sqlx_core::rt::timeout(RESTORE_TIMEOUT, DB::restore(connection, progress)).await;
        if !matches!(restored, Ok(Ok(()))) {
            connection.close_on_drop();
        }
    }
}

/// The same for one that a dropped future has left. Whatever made its caller give up may be the server, or the way to it:
/// a pool waits for an answer of what comes back to it without a limit, and would be one connection short until then.
async fn restore_abandoned<DB: Database>(connection: &mut PoolConnection<DB>, progress: Progress) {
    let answers = async {
        if DB::is_tainted(connection, progress) {
            DB::restore(connection, progress).await?;
        }
        connection.ping().await
    };
    if !matches!(sqlx_core::rt::timeout(RESTORE_TIMEOUT, answers).await, Ok(Ok(()))) {
        connection.close_on_drop();
    }
}

/// Brings back a connection that the caller keeps. After a begin that failed no transaction on it is ours: one that is
/// open is the caller's own, begun by text.
async fn restore_kept<DB: Database>(connection: &mut DB::Connection, progress: Progress) -> Result<(), sqlx::Error> {
    if progress == Progress::Beginning {
        DB::put_settings_back(connection).await?;
    } else if DB::is_tainted(connection, progress) {
        DB::restore(connection, progress).await?;
    }
    if DB::ENDS_IN_AN_EMPTY_TRANSACTION { connection.ping().await } else { Ok(()) }
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

/// How long to wait before beginning again, if that may help.
fn pause_after(
    error: &Error,
    claim_pauses: &mut ExponentialBackoff,
    run_pauses: &mut ExponentialBackoff,
    consumer: &'static str,
) -> Option<Duration> {
    if is_conflict(error)
        && let Some(pause) = claim_pauses.next()
    {
        observe::conflict(consumer);
        return Some(pause);
    }
    // A database that was busy for too long, say: `retry` has been asked for. A rival is waited for once.
    if matches!(error, Error::Database(_)) && error.is_transient() {
        return run_pauses.next().inspect(|_| observe::retried(consumer));
    }
    None
}

/// A conflict between transactions, or a connection that died in the pool: trying again may succeed at once. Not a
/// time-out, which has made the caller wait already.
fn is_conflict(error: &Error) -> bool {
    match error {
        Error::Database(error) => {
            matches!(database::failure_at_commit(error), Failure::Conflict | Failure::Unknown)
        }
        _ => false,
    }
}

/// What an error of the claim's statement means.
pub(crate) fn claim_error(error: sqlx::Error, statements: &Statements, identity: &Identity) -> Error {
    if database::failure_at_commit(&error) == Failure::LockTimeout {
        Error::InProgress(InProgress(identity.clone()))
    } else {
        table_error(error, statements)
    }
}

/// What an error of a statement over the claim table means.
pub(crate) fn table_error(error: sqlx::Error, statements: &Statements) -> Error {
    if database::failure(&error) == Failure::Schema {
        Error::NotMigrated { table: statements.table.to_string(), source: error }
    } else {
        Error::Database(error)
    }
}
