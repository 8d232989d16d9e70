//! Delivering once, again, and several at once.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use super::Failure;
use super::notes::{Notes, Watched};
use crate::Outcome;

/// A rival may have to find out first that its client is gone.
const REDELIVERIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(100);

/// What a delivery came to, without its value.
#[derive(Debug)]
pub(super) enum Ended {
    Processed,
    /// An earlier delivery had done the work, as a claim or a position says.
    Recognised(&'static str),
    Expired,
    Failed(String),
    /// It was broken off.
    Dropped,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Processed => f.write_str("processed"),
            Self::Recognised(outcome) => f.write_str(outcome),
            Self::Expired => f.write_str("expired"),
            Self::Failed(error) => write!(f, "failed ({error})"),
            Self::Dropped => f.write_str("broken off"),
        }
    }
}

/// Delivers a message, and breaks the delivery off at the first await at which `stop` says so.
pub(super) async fn deliver_until<T, E: fmt::Debug>(
    stop: impl FnMut() -> bool + Unpin,
    delivery: impl Future<Output = Result<Outcome<T>, E>>,
) -> (Ended, Notes) {
    let (output, notes) = Watched::new(delivery, stop).await;
    let ended = match output {
        None => Ended::Dropped,
        Some(Ok(Outcome::Processed(_))) => Ended::Processed,
        Some(Ok(Outcome::Expired(_))) => Ended::Expired,
        Some(Ok(outcome)) => Ended::Recognised(outcome.as_str()),
        Some(Err(_)) if notes.expired => Ended::Expired,
        Some(Err(error)) => Ended::Failed(format!("{error:?}")),
    };
    (ended, notes)
}

pub(super) async fn deliver<T, E: fmt::Debug>(delivery: impl Future<Output = Result<Outcome<T>, E>>) -> (Ended, Notes) {
    deliver_until(|| false, delivery).await
}

/// Delivers a message until it is acknowledged, as a queue does.
pub(super) async fn redeliver<T, E: fmt::Debug>(
    deliver: &impl AsyncFn(u64) -> Result<Outcome<T>, E>,
    message: u64,
) -> Result<Ended, Failure> {
    let mut last = Ended::Dropped;
    for _ in 0..REDELIVERIES {
        last = self::deliver(deliver(message)).await.0;
        if !matches!(last, Ended::Failed(_)) {
            return Ok(last);
        }
        sqlx_core::rt::sleep(PAUSE).await;
    }
    Err(Failure::new(
        format_args!(
            "message {message} was redelivered {REDELIVERIES} times, and never acknowledged; at last it {last}"
        ),
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
