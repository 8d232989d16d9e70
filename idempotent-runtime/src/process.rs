//! The way of one message: begin, claim, run, verify, commit. Written once, for every handler and every database.

use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{Connection as _, Pool, Transaction};

use crate::__private::HandlerError;
use crate::catalog::{Handler, Missing};
use crate::claim::Claim;
use crate::database::{self, Failed, Failure, NewClaim, Progress, Statements};
use crate::error::{InProgress, TransactionLost};
use crate::key::{self, Encoded, Writer};
use crate::outcome::{Duplicate, Identity};
use crate::source::Kind;
use crate::{Database, Error, Outcome, Source, observe};

/// How often begin and claim are tried again after a conflict. The body has not run, so this needs nobody's leave.
const CLAIM_RETRIES: u32 = 3;
/// How long bringing back a connection may take before it is closed instead.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(5);

impl Writer {
    /// Writes the key of a message.
    #[must_use]
    pub fn key(handler: &'static Handler) -> Self {
        Self::new(&handler.spec().key, key::MAX_KEY)
    }

    /// Writes the sender of a message.
    #[must_use]
    pub fn sender(handler: &'static Handler) -> Self {
        Self::new(&handler.spec().sender, key::MAX_SENDER)
    }
}

/// One delivery on its way through a handler. Outlives the transaction, so that it can bring the connection back.
pub struct Session<'c, DB: Database> {
    handler: &'static Handler,
    link: Link<'c, DB>,
    statements: &'c Statements,
    claim: Option<Claim>,
    refusal: Option<Error>,
    progress: Progress,
    retries: u32,
}

enum Link<'c, DB: Database> {
    Pool { pool: &'c Pool<DB>, connection: Option<PoolConnection<DB>> },
    Leased(&'c mut PoolConnection<DB>),
    Transaction(&'c mut DB::Connection),
    Bare(&'c mut DB::Connection),
}

/// A delivery that ends, or starts again, without its body having run.
#[derive(Debug)]
pub enum Settled {
    /// An earlier delivery did the work.
    Duplicate(Duplicate),
    /// It failed.
    Failed(Error),
    /// A conflict kept it from its claim.
    Again,
}

impl Settled {
    /// What the handler returns; nothing where it has to begin again.
    pub fn into_outcome<T, E: HandlerError>(self) -> Option<Result<Outcome<T>, E>> {
        match self {
            Self::Duplicate(duplicate) => Some(Ok(Outcome::Duplicate(duplicate))),
            Self::Failed(error) => Some(Err(E::from_error(error))),
            Self::Again => None,
        }
    }
}

impl Handler {
    /// The start of one delivery. Runs no SQL yet.
    #[must_use]
    pub fn open<'c, DB: Database>(
        &'static self,
        source: Source<'c, DB>,
        key: Encoded,
        sender: Encoded,
    ) -> Session<'c, DB> {
        let Source { kind, statements } = source;
        let link = match kind {
            Kind::Pool(pool) => Link::Pool { pool, connection: None },
            Kind::Leased(connection) => Link::Leased(connection),
            Kind::Transaction(connection) => Link::Transaction(connection),
            Kind::Bare(connection) => Link::Bare(connection),
        };
        let (claim, refusal) = match self.identify(key, sender) {
            Ok(claim) => (claim, None),
            Err(error) => (None, Some(error)),
        };
        Session { handler: self, link, statements, claim, refusal, progress: Progress::Clean, retries: CLAIM_RETRIES }
    }

    fn identify(&'static self, key: Encoded, sender: Encoded) -> Result<Option<Claim>, Error> {
        self.check()?;
        match (key, sender, self.spec().missing) {
            (Encoded::Stored(key), Encoded::Stored(sender), _) => {
                Ok(Some(Claim(Identity { consumer: self.consumer().into(), sender, key })))
            }
            (_, _, Missing::Process) => Ok(None),
            (Encoded::Missing(part), _, Missing::Reject) | (_, Encoded::Missing(part), Missing::Reject) => {
                Err(Error::missing_key(self.consumer(), part))
            }
        }
    }

    const fn new_claim<'a>(&self, statements: &'a Statements, claim: &'a Claim) -> NewClaim<'a> {
        NewClaim { statements, identity: &claim.0, retention: self.retention() }
    }
}

impl<DB: Database> Session<'_, DB> {
    /// Begins a transaction or joins the caller's, and claims the message in it.
    ///
    /// # Errors
    ///
    /// [`Settled`]: the message is not to be processed now.
    pub async fn begin(&mut self) -> Result<Run<'_, DB>, Settled> {
        if let Some(error) = self.refusal.take() {
            return Err(Settled::Failed(error));
        }
        self.recover().await;
        let Self { handler, link, statements, claim, progress, retries, .. } = self;
        let new_claim = claim.as_ref().map(|claim| handler.new_claim(statements, claim));
        let of_transaction = matches!(link, Link::Transaction(_));
        let (connection, place) = match link {
            Link::Pool { pool, connection } => match pool.acquire().await {
                Ok(acquired) => (&mut **connection.insert(acquired), Place::Own { reclaimable: true }),
                Err(error) => return Err(Settled::Failed(Error::Database(error))),
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
                return Err(Settled::Failed(lost(claim.as_ref(), false)));
            }
            Link::Transaction(connection) => (&mut **connection, Place::Callers),
        };
        let begun = match place {
            Place::Callers => DB::join(connection, new_claim).await,
            Place::Own { reclaimable } => {
                *progress = Progress::Beginning;
                DB::begin(connection, new_claim, reclaimable).await
            }
        };
        let joined = matches!(place, Place::Callers);
        match (begun, claim) {
            (Ok(Some((transaction, watch))), claim) => {
                if !joined {
                    *progress = Progress::Open;
                }
                Ok(Run { transaction, watch, claim: claim.as_ref(), statements, handler, progress })
            }
            (Ok(None), claim) => {
                match place {
                    Place::Own { reclaimable: true } => *progress = Progress::Duplicate,
                    Place::Own { reclaimable: false } => *progress = Progress::Closed,
                    Place::Callers => {}
                }
                let Some(Claim(identity)) = claim.take() else { unreachable!("without a claim there is no duplicate") };
                observe::duplicate(&identity);
                Err(Settled::Duplicate(Duplicate(identity)))
            }
            // The caller's transaction is not there any more.
            (Err(sqlx::Error::BeginFailed), claim) if of_transaction => {
                Err(Settled::Failed(lost(claim.as_ref(), false)))
            }
            // sqlx has counted one on a connection that has none: bring it back, and begin on it.
            (Err(sqlx::Error::BeginFailed), _) if joined && *retries > 0 => {
                *progress = Progress::Open;
                *retries -= 1;
                Err(Settled::Again)
            }
            (Err(error), claim) => {
                let error = match claim {
                    Some(claim) => claim_error(error, statements, &claim.0),
                    None => Error::Database(error),
                };
                if !joined && *retries > 0 && is_conflict(&error) {
                    *retries -= 1;
                    return Err(Settled::Again);
                }
                Err(Settled::Failed(error))
            }
        }
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
                if settle::<DB>(connection, self.progress).await.is_err() {
                    connection.close_on_drop();
                }
            }
            Link::Bare(connection) if self.progress != Progress::Clean => {
                // Whatever is wrong with the caller's connection, its next statement says so.
                let _ = settle::<DB>(connection, self.progress).await;
            }
            Link::Pool { connection: None, .. } | Link::Leased(_) | Link::Bare(_) | Link::Transaction(_) => {}
        }
        self.progress = Progress::Clean;
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

fn lost(claim: Option<&Claim>, kept: bool) -> Error {
    let lost = TransactionLost { claim: claim.map(|claim| claim.0.clone()), kept };
    observe::lost(&lost);
    Error::TransactionLost(lost)
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

/// Brings back a connection that the caller keeps. After a begin that failed there is nothing of ours on it: a transaction
/// that is open is the caller's own, begun by text.
async fn settle<DB: Database>(connection: &mut DB::Connection, progress: Progress) -> Result<(), sqlx::Error> {
    if progress != Progress::Beginning && DB::is_tainted(connection, progress) {
        DB::restore(connection, progress).await?;
    }
    if DB::ENDS_IN_AN_EMPTY_TRANSACTION { connection.ping().await } else { Ok(()) }
}

impl<DB: Database> Drop for Session<'_, DB> {
    /// The future was dropped, or the body has panicked.
    fn drop(&mut self) {
        let progress = self.progress;
        match &mut self.link {
            Link::Pool { connection, .. } => match connection.take() {
                Some(mut connection) if DB::is_tainted(&connection, progress) => {
                    if DB::SURVIVES_CANCELLATION {
                        // sqlx spawns the same way when a connection is dropped.
                        drop(sqlx_core::rt::spawn(async move { restore(&mut connection, progress).await }));
                    } else {
                        connection.close_on_drop();
                    }
                }
                _ => {}
            },
            Link::Leased(connection) if DB::CLOSES_LEASED && DB::is_tainted(connection, progress) => {
                connection.close_on_drop();
            }
            Link::Leased(_) | Link::Bare(_) | Link::Transaction(_) => {}
        }
    }
}

/// A claimed message whose body is to run now.
pub struct Run<'s, DB: Database> {
    transaction: Transaction<'s, DB>,
    watch: DB::Watch,
    claim: Option<&'s Claim>,
    statements: &'s Statements,
    handler: &'static Handler,
    progress: &'s mut Progress,
}

impl<'s, DB: Database> Run<'s, DB> {
    /// What the body works in.
    pub const fn transaction(&mut self) -> &mut Transaction<'s, DB> {
        &mut self.transaction
    }

    /// What a body with a `claim: &Claim` parameter works with. The macro refuses such a body together with
    /// `missing = "process"`, so there is a claim.
    ///
    /// # Panics
    ///
    /// In a handler whose messages may have no claim.
    #[must_use]
    pub const fn parts(&mut self) -> (&mut Transaction<'s, DB>, &Claim) {
        match self.claim {
            Some(claim) => (&mut self.transaction, claim),
            None => panic!("a handler with a `&Claim` parameter always has a claim"),
        }
    }

    /// Commits what the body did if it returned `Ok` and its transaction is still alive, and rolls it back otherwise.
    ///
    /// # Errors
    ///
    /// The body's own, and those of the commit.
    pub async fn finish<T, E: HandlerError>(self, result: Result<T, E>) -> Result<Outcome<T>, E> {
        let ended = self.end(result.is_ok()).await;
        match (result, ended) {
            (Ok(value), Ok(())) => Ok(Outcome::Processed(value)),
            (Err(error), Ok(())) => Err(error),
            (_, Err(error)) => Err(E::from_error(error)),
        }
    }

    async fn end(self, commit: bool) -> Result<(), Error> {
        let Self { transaction, watch, claim, statements, handler, progress } = self;
        let identity = claim.map(|claim| &claim.0);
        let new_claim = claim.map(|claim| handler.new_claim(statements, claim));
        let ended = if commit {
            DB::commit(transaction, watch, new_claim).await
        } else {
            DB::rollback(transaction, watch, new_claim).await
        };
        match ended {
            Ok(()) => {
                if *progress == Progress::Open {
                    *progress = Progress::Closed;
                }
                match (identity, commit) {
                    (Some(identity), true) => observe::processed(identity),
                    (None, true) => observe::unclaimed(handler.consumer()),
                    (_, false) => {}
                }
                Ok(())
            }
            Err(Failed::Lost { kept }) => Err(lost(claim, kept)),
            Err(Failed::AtEnd(error)) if commit => Err(Error::at_commit(error)),
            // The server undoes what a broken connection had open.
            Err(Failed::AtEnd(_)) => Ok(()),
        }
    }
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
