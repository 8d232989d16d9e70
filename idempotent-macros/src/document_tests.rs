use proc_macro2::TokenStream;
use quote::quote;
use syn::{Item, Lit, Meta};

/// The generated section of a handler, as Markdown.
fn section(arguments: TokenStream, item: TokenStream) -> String {
    let output = crate::attribute::idempotent(arguments, item, Some("billing"));
    let Ok(Item::Fn(function)) = syn::parse2(output) else { panic!("a function") };
    let mut sections = function.attrs.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
            syn::Expr::Lit(value) => match &value.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    sections.next_back().unwrap_or_default()
}

#[test]
fn every_part_and_every_option_is_explained() {
    let text = section(
        quote!(
            key = "v1:{event.tenant}|{number}",
            consumer = "billing.grant",
            sender = "{event.source}",
            retention = "30d",
            horizon = "1d",
            missing = "process"
        ),
        quote! {
            /// Grants.
            async fn grant(tx: &mut PgTransaction<'_>, event: &'static Event<'_, u8>, number: u64) -> sqlx::Result<()> {}
        },
    );
    let expected = "
# Idempotency

Each message is processed once. When one arrives whose key has been processed before, the body does not run, and the \
answer is `Ok(Outcome::Duplicate(_))`. For `tx`, pass where the work is to be done: `&pool`, `&store`, \
`&mut connection`, or `&mut *transaction` to join a transaction of your own.

The key of a message is `v1:{event.tenant}|{number}`:

| part | parameter | type | field |
|---|---|---|---|
| `{event.tenant}` | `event` | `&'static Event<'_, u8>` | `tenant` |
| `{number}` | `number` | `u64` | the value itself |

When `event.tenant` is `42` and `number` is `7`, the database holds `v1:42|7`. Inside a value, spaces, `%`, control \
characters and everything outside ASCII, and the punctuation of the template itself (`:` `|`) are percent-encoded: \
`a:b` is stored as `a%3Ab`. A key of more than 255 bytes is stored as its SHA-256.

Its sender is `{event.source}`:

| part | parameter | type | field |
|---|---|---|---|
| `{event.source}` | `event` | `&'static Event<'_, u8>` | `source` |


- **Consumer:** `billing.grant`, chosen for this handler. Another consumer processes the same message for itself.
- **Sender:** `{event.source}`. The same key from another sender is another message.
- **Retention:** a processed key is remembered for 30 days, longer than the 1 day within which the sender may redeliver.
- **Missing key:** a message of which a part of the key is absent, empty or blank is processed without protection, \
each time that it arrives.
";
    assert_eq!(text, expected);
}

#[test]
fn defaults_are_explained_as_defaults() {
    let text = section(
        quote!(key = "{id}"),
        quote! {
            /// Method.
            async fn grant(&self, Event { id, .. }: Event, _: &mut PgTransaction<'_>) -> sqlx::Result<()> {}
        },
    );
    for expected in [
        "| `{id}` | `id` | a part of `Event` | the value itself |",
        "For `tx`, pass",
        "are percent-encoded: `a b` is stored as `a%20b`",
        "**Consumer:** `billing.grant`, made from the names of package and function",
        "**Sender:** not told apart",
        "remembered for 7 days. A message that is redelivered later is taken for a new one.",
        "is refused with `Error::MissingKey`",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn cells_hold_any_template() {
    let text = section(
        quote!(key = "{self.a}|`{b.0.c()}"),
        quote! {
            /// Method.
            async fn f(&self, tx: &mut PgTransaction<'_>, b: impl Fn(u8) -> u8) -> sqlx::Result<()> {}
        },
    );
    assert!(text.contains("The key of a message is ``` {self.a}|`{b.0.c()} ```"), "{text}");
    assert!(text.contains("| `{self.a}` | `self` | `Self` | `a` |"), "{text}");
    assert!(text.contains("| `{b.0.c()}` | `b` | `impl Fn(u8) -> u8` | `0.c()` |"), "{text}");
}
