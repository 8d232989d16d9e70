//! The future is not `Send` because the body is not.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}")]
async fn handler(tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    let counter = std::rc::Rc::new(1);
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    drop(counter);
    Ok(())
}

fn caller(pool: sqlx::SqlitePool) {
    tokio::spawn(async move { handler(&pool, &Event { id: String::new() }).await });
}

fn main() {}
