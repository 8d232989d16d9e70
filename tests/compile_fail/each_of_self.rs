//! The batch is a parameter.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Events(Vec<String>);

impl Events {
    #[idempotent(key = "{id}", each = "id in self")]
    async fn handler(self, _tx: &mut SqliteTransaction<'_>) -> sqlx::Result<()> {
        drop(self.0);
        Ok(())
    }
}

fn main() {}
