//! The trait declares the signature as it was before the macro.

#![allow(async_fn_in_trait, unused_variables)]

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

trait Handler {
    async fn handle(&self, tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()>;
}

struct Own;

impl Handler for Own {
    #[idempotent(key = "{event.id}")]
    async fn handle(&self, tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
        Ok(())
    }
}

fn main() {}
