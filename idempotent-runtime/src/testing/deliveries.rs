//! Delivering once, again, and several at once.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use super::delivered::{Delivered, Ended, Numbered};
use super::notes::{Notes, Watched};
use super::{Failure, Inspect, Kit, verdicts};
use crate::Database;

/// A rival may have to find out first that its client is gone.
const REDELIVERIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(100);

impl<DB: Database + Inspect> Kit<DB> {
    /// Delivers a message.
    pub(super) async fn deliver<D: Delivered, E: fmt::Debug>(
        &self,
        deliver: &impl AsyncFn(u64) -> Result<D, E>,
        message: Numbered,
    ) -> Result<(Ended, Notes), Failure> {
        self.watch(Watched::new(deliver(message.number), || false), message).await
    }

    /// Sees what a delivery comes to.
    pub(super) async fn watch<D: Delivered, E: fmt::Debug>(
        &self,
        delivery: Watched<impl Future<Output = Result<D, E>>, impl FnMut() -> bool + Unpin>,
        message: Numbered,
    ) -> Result<(Ended, Notes), Failure> {
        let Ok((output, notes)) = sqlx_core::rt::timeout(self.patience, delivery).await else {
            return Err(verdicts::endless(message, self.patience));
        };
        let ended = match output {
            None => Ended::Dropped,
            Some(Ok(delivered)) => delivered.ended(),
            Some(Err(_)) if notes.expired => Ended::Expired("expired".into()),
            Some(Err(error)) => Ended::Failed(match &notes.lost {
                // It says more than its fields.
                Some(lost) => lost.to_string(),
                None => format!("{error:?}"),
            }),
        };
        Ok((ended, notes))
    }

    /// Delivers a message until it is acknowledged, as a queue does.
    pub(super) async fn redeliver<D: Delivered, E: fmt::Debug>(
        &self,
        deliver: &impl AsyncFn(u64) -> Result<D, E>,
        message: Numbered,
    ) -> Result<Ended, Failure> {
        let mut last = Ended::Dropped;
        for _ in 0..REDELIVERIES {
            last = self.deliver(deliver, message).await?.0;
            if !matches!(last, Ended::Failed(_)) {
                return Ok(last);
            }
            sqlx_core::rt::sleep(PAUSE).await;
        }
        Err(Failure::new(
            format_args!("{message} was redelivered {REDELIVERIES} times, and never acknowledged; at last it {last}"),
            "an earlier delivery has left something behind that every later one fails at",
        ))
    }
}

/// Polls all of them until each is ready.
pub(super) async fn together<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<Pin<Box<F>>> = futures.map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
            }
        }
        if outputs.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
