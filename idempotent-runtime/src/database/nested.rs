//! A savepoint whose future may be dropped in flight without harm to the caller's transaction.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use sqlx::{Connection as _, Database, Transaction};

type Begin<'c, DB> = Pin<Box<dyn Future<Output = Result<Transaction<'c, DB>, sqlx::Error>> + Send + 'c>>;

/// A nested begin that is not simply dropped.
///
/// In sqlx 0.9.0 a nested begin that is dropped in flight queues a rollback for the depth that has not been reached yet:
/// that of the caller's whole transaction.
pub(super) struct Nested<'c, DB: Database> {
    begin: Option<Begin<'c, DB>>,
    started: bool,
    on_drop: fn(Begin<'_, DB>),
}

impl<'c, DB: Database> Nested<'c, DB> {
    pub(super) fn begin(connection: &'c mut DB::Connection, on_drop: fn(Begin<'_, DB>)) -> Self {
        Self { begin: Some(Box::pin(connection.begin())), started: false, on_drop }
    }
}

impl<'c, DB: Database> Future for Nested<'c, DB> {
    type Output = Result<Transaction<'c, DB>, sqlx::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.started = true;
        let Some(begin) = &mut self.begin else { return Poll::Pending };
        let result = std::task::ready!(begin.as_mut().poll(context));
        self.begin = None;
        Poll::Ready(result)
    }
}

impl<DB: Database> Drop for Nested<'_, DB> {
    fn drop(&mut self) {
        if let (Some(begin), true) = (self.begin.take(), self.started) {
            (self.on_drop)(begin);
        }
    }
}
