//! What one run has changed, the next one would find changed.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Service;

impl Service {
    #[idempotent(key = "{id}", retry = 3)]
    async fn handler(&mut self, _tx: &mut SqliteTransaction<'_>, id: &str) -> sqlx::Result<()> {
        let _ = (&self, id);
        Ok(())
    }
}

fn main() {}
