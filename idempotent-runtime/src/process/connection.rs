//! The connection that a handler works on, and how it is brought back.

use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{Connection as _, Pool};

use crate::Database;
use crate::database::Progress;

/// How long bringing back a connection may take before it is closed instead.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Whose transaction the handler works in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// The caller's, behind a savepoint.
    Callers,
    /// Its own. If its future is dropped, a `reclaimable` connection is restored or closed before anybody else uses it;
    /// the caller may go on with one that it has kept.
    Own { reclaimable: bool },
}

impl Place {
    /// On a connection that the caller has kept.
    pub(super) const fn of(in_transaction: bool) -> Self {
        if in_transaction { Self::Callers } else { Self::Own { reclaimable: false } }
    }
}

/// Without `test_before_acquire` a pool hands out what has died in it, for each delivery one. One is found by the request
/// that begins; after that the rest is asked for a sign of life first, so that any number of them costs one attempt.
pub(super) async fn acquire<DB: Database>(pool: &Pool<DB>, pings: bool) -> Result<PoolConnection<DB>, sqlx::Error> {
    loop {
        let mut connection = pool.acquire().await?;
        if !pings || connection.ping().await.is_ok() {
            return Ok(connection);
        }
        connection.close_on_drop();
    }
}

/// A connection must not go back to the pool with a transaction or a setting that others would inherit.
pub(super) async fn restore<DB: Database>(connection: &mut PoolConnection<DB>, progress: Progress) {
    if DB::is_tainted(connection, progress) {
        let restored = sqlx_core::rt::timeout(RESTORE_TIMEOUT, DB::restore(connection, progress)).await;
        if !matches!(restored, Ok(Ok(()))) {
            connection.close_on_drop();
        }
    }
}

/// The same for one that a dropped future has left. Whatever made its caller give up may be the server, or the way to it:
/// a pool waits for an answer of what comes back to it without a limit, and would be one connection short until then.
pub(super) async fn restore_abandoned<DB: Database>(connection: &mut PoolConnection<DB>, progress: Progress) {
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
pub(super) async fn restore_kept<DB: Database>(
    connection: &mut DB::Connection,
    progress: Progress,
) -> Result<(), sqlx::Error> {
    if progress == Progress::Beginning {
        DB::put_settings_back(connection).await?;
    } else if DB::is_tainted(connection, progress) {
        DB::restore(connection, progress).await?;
    }
    if DB::ENDS_IN_AN_EMPTY_TRANSACTION { connection.ping().await } else { Ok(()) }
}
