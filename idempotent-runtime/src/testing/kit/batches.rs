//! Batches that are fresh in part.

use std::fmt;

use crate::Database;
use crate::testing::delivered::{Delivered, Ended, Numbered};
use crate::testing::inspect::Table;
use crate::testing::notes::{Look, Watched};
use crate::testing::state::Tables;
use crate::testing::verdicts::{self, not_processed};
use crate::testing::{Failure, Inspect, Kit};

/// Batches that overlap more than this are not tried.
const MOST_OVERLAP: usize = 20;

/// What one delivery would have done.
struct Seen {
    /// Before it.
    before: Tables,
    /// At its commit.
    inside: Tables,
    sent: usize,
    fresh: usize,
}

impl<DB: Database + Inspect> Kit<DB> {
    /// Lets the body have a batch whose items are all fresh, and the same batch with the first or the last of them fresh, as
    /// if an earlier batch had had the others. That has to make a difference: where it makes none, the body works on the items
    /// that were passed to its caller. None is committed.
    ///
    /// Nothing is found where a batch has less than two fresh items, or where a body writes something else each time, such as
    /// the moment or a number that the database draws. Single messages pass.
    ///
    /// # Errors
    ///
    /// A [`Failure`] that names the tables.
    pub async fn fresh_only<D: Delivered, E: fmt::Debug>(
        &self,
        deliver: impl AsyncFn(u64) -> Result<D, E>,
    ) -> Result<(), Failure> {
        for _ in 0..if D::IS_BATCH { MOST_OVERLAP } else { 0 } {
            let batch = self.next::<D>();
            let Some(all) = self.looked_into(&deliver, batch, None).await? else { return Ok(()) };
            if all.fresh < 2 {
                continue;
            }
            let changed: Vec<_> =
                all.inside.iter().filter(|(table, contents)| all.before.get(*table) != Some(contents)).collect();
            // Two of them: the effect may be that of the greatest item, or of the first.
            for alone in [0, all.fresh - 1] {
                let Some(one) = self.looked_into(&deliver, batch, Some(alone)).await? else { return Ok(()) };
                if changed.is_empty() || all.inside != one.inside || all.sent != one.sent {
                    return Ok(());
                }
            }
            return Err(verdicts::all_items(batch, all.fresh, changed.into_iter().map(|(table, _)| table.as_str())));
        }
        Ok(())
    }

    /// `None`: no commit of it could be made to fail.
    async fn looked_into<D: Delivered, E: fmt::Debug>(
        &self,
        deliver: &impl AsyncFn(u64) -> Result<D, E>,
        batch: Numbered,
        alone: Option<usize>,
    ) -> Result<Option<Seen>, Failure> {
        let [tables, _] = self.tables().await?;
        let before = self.state().await?.tables;
        let sent = self.recorder.entries().len();
        let delivery = Watched::new(deliver(batch.number), || false).looks::<DB>(look::<DB>(tables), alone);
        let (ended, notes) = self.watch(delivery, batch).await?;
        let sent = self.recorder.entries().len() - sent;
        match ended {
            Ended::Failed(_) if notes.uncommitted => {}
            ended if notes.uncommitted => return Err(verdicts::hidden(batch, &ended)),
            Ended::Processed(_) => return Ok(None),
            // Overlapping batches: none of its items was fresh.
            Ended::Duplicate(_) | Ended::Stale(_) if alone.is_none() => {}
            ended => return Err(not_processed(batch, &ended, notes.lost.as_ref())),
        }
        Ok(Some(Seen { inside: notes.inside.unwrap_or_else(|| before.clone()), before, sent, fresh: notes.fresh }))
    }
}

fn look<DB: Database + Inspect>(tables: Vec<Table>) -> Look<DB> {
    Box::new(move |connection| {
        Box::pin(async move {
            let mut contents = Tables::new();
            for table in tables {
                contents.insert(table.shown(), DB::contents(connection, &table).await?);
            }
            Ok(contents)
        })
    })
}
