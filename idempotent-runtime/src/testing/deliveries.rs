//! Delivering once, again, and several at once.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use super::Failure;
use super::delivered::{Delivered, Ended, Numbered};
use super::notes::{Notes, Watched};

/// A rival may have to find out first that its client is gone.
const REDELIVERIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(100);

/// Delivers a message, and breaks the delivery off at the first await at which `stop` says so.
pub(super) async fn deliver_until<D: Delivered, E: fmt::Debug>(
    stop: impl FnMut() -> bool + Unpin,
    delivery: impl Future<Output = Result<D, E>>,
) -> (Ended, Notes) {
    let (output, notes) = Watched::new(delivery, stop).await;
    let ended = match output {
        None => Ended::Dropped,
        Some(Ok(delivered)) => delivered.ended(),
        Some(Err(_)) if notes.expired => Ended::Expired("expired".into()),
        Some(Err(error)) => Ended::Failed(format!("{error:?}")),
    };
    (ended, notes)
}

pub(super) async fn deliver<D: Delivered, E: fmt::Debug>(
    delivery: impl Future<Output = Result<D, E>>,
) -> (Ended, Notes) {
    deliver_until(|| false, delivery).await
}

/// Delivers a message until it is acknowledged, as a queue does.
pub(super) async fn redeliver<D: Delivered, E: fmt::Debug>(
    deliver: &impl AsyncFn(u64) -> Result<D, E>,
    message: Numbered,
) -> Result<Ended, Failure> {
    let mut last = Ended::Dropped;
    for _ in 0..REDELIVERIES {
        last = self::deliver(deliver(message.number)).await.0;
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
