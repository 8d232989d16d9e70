//! Deliveries that are broken off.

use std::fmt;

use crate::Database;
use crate::testing::delivered::{Delivered, Ended};
use crate::testing::notes::Watched;
use crate::testing::state::Effect;
use crate::testing::verdicts::{not_processed, nothing, one_effect};
use crate::testing::{Failure, Inspect, Kit};

/// A delivery that awaits more often than this is broken off at the first of these points only.
const MOST_POLLS: usize = 300;

impl<DB: Database + Inspect> Kit<DB> {
    /// Breaks deliveries off at each point where they await, one message for each point, until one comes to its end: as a
    /// timeout, a `select!` or a shutdown does. What is broken off has no effect, unless it was committed; its
    /// redelivery leads to one effect.
    ///
    /// A delivery that awaits more than 300 times is broken off at the first 300.
    ///
    /// # Errors
    ///
    /// A [`Failure`] that says after how many polls which table had changed.
    pub async fn interrupted<D: Delivered, E: fmt::Debug>(
        &self,
        deliver: impl AsyncFn(u64) -> Result<D, E>,
    ) -> Result<(), Failure> {
        let effect = self.effect(&deliver).await?;
        // At the very await after something was sent: how often a delivery awaits differs from one to the next.
        if effect.sends() {
            let sent = self.recorder.counts().plain;
            let stop = || self.recorder.counts().plain > sent;
            self.broken_off(&effect, &deliver, stop, format_args!("where it had sent something")).await?;
        }
        for polls in 1..=MOST_POLLS {
            let mut polled = 0;
            let stop = move || {
                polled += 1;
                polled == polls
            };
            let ended = self.broken_off(&effect, &deliver, stop, format_args!("after {polls} polls")).await?;
            if ended.is_processed() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Breaks one delivery off, and redelivers its message.
    async fn broken_off<D: Delivered, E: fmt::Debug>(
        &self,
        effect: &Effect,
        deliver: &impl AsyncFn(u64) -> Result<D, E>,
        stop: impl FnMut() -> bool + Unpin,
        place: fmt::Arguments<'_>,
    ) -> Result<Ended, Failure> {
        let message = self.next::<D>();
        let before = self.state().await?;
        let (ended, _) = self.watch(Watched::new(deliver(message.number), stop), message).await?;
        match ended {
            Ended::Dropped => {}
            Ended::Processed(_) => return Ok(ended),
            other => return Err(not_processed(message, &other, None)),
        }
        self.tidied().await;
        let dropped = self.state().await?;
        // A commit on its way may have come through by now, the claim with it.
        if dropped.marks == before.marks {
            let what = format_args!("the delivery of {message}, broken off {place} and without a claim,");
            nothing(&before, &dropped, what)?;
        }
        self.redeliver(deliver, message).await?;
        let after = self.state().await?;
        let what = format_args!("{message}, broken off {place} and redelivered,");
        one_effect(effect, &before, &after, what)?;
        Ok(ended)
    }
}
