//! Connections for upkeep, and its retries.

use std::future::Future;
use std::time::Duration;

use sqlx::Pool;
use sqlx::pool::PoolConnection;

use crate::database::{self, Failure};
use crate::{Database, observe};

/// How often a request is tried again after a transient error, and the first pause before that; each further one is
/// doubled.
const RETRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// A connection that goes back to its pool in good order, or not at all where a dropped future or an error may have
/// left a request or a transaction open on it.
pub(crate) struct Lent<DB: Database> {
    pub(crate) connection: PoolConnection<DB>,
    in_order: bool,
}

impl<DB: Database> Lent<DB> {
    pub(crate) async fn from(pool: &Pool<DB>) -> Result<Self, sqlx::Error> {
        Ok(Self { connection: pool.acquire().await?, in_order: false })
    }

    pub(crate) fn give_back(mut self) {
        self.in_order = true;
    }
}

impl<DB: Database> Drop for Lent<DB> {
    fn drop(&mut self) {
        if !self.in_order && !DB::SURVIVES_CANCELLATION {
            self.connection.close_on_drop();
        }
    }
}

/// Tries again what has failed with a transient error.
pub(crate) async fn retried<T, F, R>(mut request: F) -> Result<T, sqlx::Error>
where
    F: FnMut() -> R,
    R: Future<Output = Result<T, sqlx::Error>>,
{
    let mut pause = FIRST_PAUSE;
    for _ in 0..RETRIES {
        match request().await {
            // Whoever waited for a connection in vain has waited long enough.
            Err(error)
                if database::failure(&error) == Failure::Transient && !matches!(error, sqlx::Error::PoolTimedOut) =>
            {
                observe::tried_again(&error);
                sqlx_core::rt::sleep(pause).await;
                pause *= 2;
            }
            ended => return ended,
        }
    }
    request().await
}
