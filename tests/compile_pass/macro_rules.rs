//! M3: handlers made by `macro_rules!`, whole or from fragments of every kind.

use idempotent_runtime::{KeyPart, idempotent};
use sqlx::{Sqlite, SqlitePool, SqliteTransaction, Transaction};

pub struct Event {
    id: String,
}

macro_rules! whole {
    ($name:ident, $key:literal) => {
        #[idempotent(key = $key)]
        async fn $name(tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<usize> {
            sqlx::query("SELECT 1").execute(&mut **tx).await?;
            Ok(event.id.len())
        }
    };
}
whole!(whole_handler, "{event.id}");

macro_rules! by_expression {
    ($name:ident, $key:expr, $retention:expr) => {
        #[idempotent(key = $key, retention = $retention)]
        async fn $name(tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<usize> {
            sqlx::query("SELECT 1").execute(&mut **tx).await?;
            Ok(event.id.len())
        }
    };
}
by_expression!(handler_by_expression, "{event.id}", "30d");

macro_rules! from_fragments {
    ($(#[$meta:meta])* $vis:vis $name:ident($tx:ident: $tx_type:ty, $event:ident: $event_type:ty) -> $output:ty $body:block) => {
        $(#[$meta])*
        #[idempotent(key = "{event.id}", sender = "macro")]
        $vis async fn $name($tx: $tx_type, $event: $event_type) -> $output $body
    };
}
from_fragments! {
    /// Documented by the caller of the macro.
    pub handler_from_fragments(tx: &mut Transaction<'_, Sqlite>, event: &Event) -> sqlx::Result<usize> {
        sqlx::query("SELECT 1").execute(&mut **tx).await?;
        Ok(event.id.len())
    }
}

macro_rules! body_from_outside {
    (|$tx:ident, $event:ident| $body:expr) => {
        #[idempotent(key = "{event.id}", consumer = "outside")]
        async fn handler_with_body($tx: &mut SqliteTransaction<'_>, $event: &Event, tx: u8) -> sqlx::Result<usize> {
            let _ = tx;
            $body
        }
    };
}
body_from_outside!(|tx, event| {
    // Means the transaction: the macro's own `tx` is another name.
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(event.id.len())
});

macro_rules! with_lifetime {
    ($lifetime:lifetime, $name:ident) => {
        #[idempotent(key = "{event.id}")]
        async fn $name<$lifetime>(_tx: &mut SqliteTransaction<'_>, event: &$lifetime Event) -> sqlx::Result<&$lifetime str> {
            Ok(&event.id)
        }
    };
}
with_lifetime!('a, handler_with_lifetime);

macro_rules! method {
    ($type:ident, $key:literal) => {
        impl $type {
            #[idempotent(key = $key)]
            async fn handle(&self, tx: &mut SqliteTransaction<'_>) -> sqlx::Result<usize> {
                sqlx::query("SELECT 1").execute(&mut **tx).await?;
                Ok(self.id.len())
            }
        }
    };
}
method!(Event, "{self.id}");

macro_rules! key_part {
    ($name:ident, $field:ty, $($variant:ident = $text:literal),+) => {
        #[derive(KeyPart)]
        struct $name($field);

        #[derive(KeyPart)]
        enum Kind { $( #[key_part($text)] $variant ),+ }
    };
}
key_part!(Id, u64, Created = "created", Cancelled = "cancelled");

#[idempotent(key = "{id}:{kind}")]
async fn with_derived(_tx: &mut SqliteTransaction<'_>, id: Id, kind: Kind) -> sqlx::Result<()> {
    Ok(())
}

async fn callers(pool: &SqlitePool, event: &Event) -> sqlx::Result<()> {
    whole_handler(pool, event).await?;
    handler_by_expression(pool, event).await?;
    handler_from_fragments(pool, event).await?;
    handler_with_body(pool, event, 1).await?;
    handler_with_lifetime(pool, event).await?;
    event.handle(pool).await?;
    with_derived(pool, Id(1), Kind::Created).await?;
    with_derived(pool, Id(1), Kind::Cancelled).await?;
    Ok(())
}

fn main() {
    let _ = callers;
}
