//! M16: keywords as names.

#![deny(warnings)]

use idempotent_runtime::idempotent;
use sqlx::{SqlitePool, SqliteTransaction};

struct Event {
    r#type: String,
    r#gen: u8,
    r#await: (u8, u8),
}

impl Event {
    fn r#move(&self) -> &str {
        &self.r#type
    }
}

#[idempotent(key = "{event.r#type}:{event.type}:{event.gen}:{event.await.1}:{event.move()}:{r#fn}:{fn}")]
async fn r#match(r#in: &mut SqliteTransaction<'_>, event: &Event, r#fn: u8) -> sqlx::Result<u8> {
    sqlx::query("SELECT 1").execute(&mut **r#in).await?;
    Ok(event.r#gen + r#fn + event.r#await.0)
}

async fn callers(pool: &SqlitePool, event: &Event) -> sqlx::Result<()> {
    r#match(pool, event, 1).await?;
    Ok(())
}

fn main() {
    let event = Event { r#type: String::new(), r#gen: 1, r#await: (1, 2) };
    let _ = event.r#move();
    let _ = callers;
    let catalog = idempotent_runtime::catalog();
    let mut consumers = catalog.handlers().iter().map(|handler| handler.consumer());
    assert!(consumers.any(|consumer| consumer.ends_with(".match")));
}
