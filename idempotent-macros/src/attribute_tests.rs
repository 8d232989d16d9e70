use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{File, Item, ItemFn};

use super::{expand_in, idempotent};
use crate::display::display;
use crate::manifest::Dependency;

fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    idempotent(arguments, item, Some("billing"))
}

/// Code without any space, so that it can be searched.
fn squeezed(code: impl ToTokens) -> String {
    code.into_token_stream().to_string().split_whitespace().collect()
}

fn parse(output: TokenStream) -> Vec<Item> {
    syn::parse2::<File>(output).unwrap_or_else(|error| panic!("{error}")).items
}

/// The messages and the function of an expansion with errors.
fn refused(arguments: TokenStream, item: TokenStream) -> (Vec<String>, ItemFn) {
    let mut messages = Vec::new();
    let mut function = None;
    for item in parse(expand(arguments, item)) {
        match item {
            Item::Macro(item) => messages.push(item.mac.tokens.to_string()),
            Item::Fn(item) => function = Some(item),
            _ => panic!("unexpected item"),
        }
    }
    (messages, function.expect("the function is still there"))
}

#[test]
fn a_handler_is_rewritten_and_registered() {
    let output = expand(
        quote!(key = "{event.id}"),
        quote! {
            /// Documented.
            async fn grant(tx: &mut PgTransaction<'_>, event: &Event, claim: &Claim) -> sqlx::Result<i64> {
                Ok(1)
            }
        },
    );
    let items = parse(output);
    let [Item::Fn(function)] = items.as_slice() else { panic!("one function") };
    assert_eq!(
        display(&function.sig),
        "async fn grant(tx: impl ::idempotent_runtime::IntoSource<'_, ::idempotent_runtime::__private::Postgres>, \
         event: &Event) -> \
         sqlx::Result<::idempotent_runtime::Outcome<i64>>"
    );
    let body = squeezed(&function.block);
    assert!(body.contains(r#"consumer:"billing.grant",key:"#), "{body}");
    assert!(body.contains(r#"key:::idempotent_runtime::__private::Template::new("{event.id}",&["",""])"#), "{body}");
    assert!(body.contains(r#".part("event.id",&event.id)"#), "{body}");
    assert!(body.contains("let(transaction,claim)=run.parts()"), "{body}");
}

#[test]
fn the_source_has_a_named_type_where_no_type_arguments_or_traits_can_tell() {
    let signature = |item: TokenStream| match parse(expand(quote!(key = "{id}"), item)).remove(0) {
        Item::Fn(function) => display(&function.sig),
        _ => panic!("a function"),
    };
    for parameters in [quote!(tx: &mut SqliteTransaction<'_>), quote!(&self, tx: &mut SqliteTransaction<'_>)] {
        for visibility in [quote!(pub), quote!(pub(crate)), quote!()] {
            let may_be_a_traits = visibility.is_empty();
            let receiver = if parameters.to_string().contains("self") { "&self, " } else { "" };
            let signature = signature(quote!(
                #visibility async fn f(#parameters, id: u8) -> sqlx::Result<()> {
                    Ok(())
                }
            ));
            let expected = if may_be_a_traits {
                format!("async fn f({receiver}tx: impl ::idempotent_runtime::IntoSource<'_, ")
            } else {
                "async fn f<Lent, Via: ::idempotent_runtime::IntoSourceFor<Lent, ".to_owned()
            };
            assert!(signature.starts_with(&expected), "{signature}");
            assert_eq!(signature.contains("tx: Via, id: u8)"), !may_be_a_traits, "{signature}");
        }
    }
    // The names are not those of the user.
    let taken = quote!(
        pub async fn f(tx: &mut SqliteTransaction<'_>, id: u8) -> sqlx::Result<Via> {
            Via::new()
        }
    );
    assert!(signature(taken).contains("<Lent, Via2: "));
    // Explicit type arguments keep their meaning.
    let generic = quote!(
        pub async fn f<T>(tx: &mut SqliteTransaction<'_>, id: T) -> sqlx::Result<()> {
            Ok(())
        }
    );
    assert!(signature(generic).starts_with("async fn f<T>(tx: impl "));
}

#[test]
fn lifetimes_that_nothing_names_any_more_are_gone() {
    let item = quote! {
        async fn f<'t, 'c, 'e>(tx: &'t mut PgTransaction<'c>, id: &'e str) -> sqlx::Result<&'e str> { g::<'c>() }
    };
    let Item::Fn(function) = parse(expand(quote!(key = "{id}"), item)).remove(0) else { panic!("a function") };
    assert!(display(&function.sig).starts_with("async fn f<'c, 'e>("), "{}", display(&function.sig));
}

#[test]
fn all_errors_are_reported_and_the_function_stays() {
    let (messages, function) = refused(
        quote!(key = "{nothing.id}:{event.id:?}", key = "", retention = 7, horizon = "3x", colour = "red"),
        quote!(
            fn grant(tx: PgTransaction<'_>, event: &Event) -> i64 {
                1
            }
        ),
    );
    for expected in [
        "`key` is given twice",
        "text in quotes",
        "no option `colour`",
        "not async",
        "by value",
        "can fail",
        "format spec",
        "no parameter `nothing`",
        "unknown unit",
    ] {
        assert!(messages.iter().any(|message| message.contains(expected)), "{expected}: {messages:#?}");
    }
    assert_eq!(messages.len(), 9, "{messages:#?}");
    assert!(display(&function.sig).contains("tx: impl ::idempotent_runtime::IntoSource"));
}

#[test]
fn beside_an_error_nothing_of_the_body_runs_and_nothing_is_registered() {
    let (_, function) = refused(
        quote!(key = "constant"),
        quote!(
            async fn f(tx: &mut PgTransaction<'_>, event: &Event) -> sqlx::Result<i64> {
                charge(event).await
            }
        ),
    );
    let body = squeezed(&function.block);
    assert!(body.starts_with("{let()=match::core::option::Option::None{"), "{body}");
    assert!(body.contains("charge(event)"), "{body}");
    assert!(!body.contains("HANDLER"), "{body}");
}

#[test]
fn a_body_that_does_not_parse_comes_back_as_it_was() {
    let body = "if event . ; ) ( ;".replace(") (", "");
    let item: TokenStream =
        format!("async fn f(tx: &mut PgTransaction<'_>, event: &Event) -> sqlx::Result<()> {{ {body} }}")
            .parse()
            .expect("tokens");
    let output = expand(quote!(key = "{event.id}"), item).to_string();
    assert!(output.contains("if event . ;"), "{output}");
    assert!(!output.contains("compile_error"), "{output}");
}

#[test]
fn an_item_that_is_no_function_comes_back_as_it_was() {
    for item in [
        quote!(
            struct S {
                id: u8,
            }
        ),
        quote!(impl S { async fn f() {} }),
        quote!(let x = 1;),
        quote!(),
    ] {
        let output = expand(quote!(key = "{event.id}"), item.clone()).to_string();
        assert!(output.starts_with(":: core :: compile_error !"), "{output}");
        assert!(output.ends_with(&item.to_string()), "{output}");
    }
}

#[test]
fn the_user_can_lack_a_package() {
    let item = quote!(
        async fn f(tx: &mut PgTransaction<'_>, id: u8) -> sqlx::Result<()> {
            Ok(())
        }
    );
    let refused = idempotent(quote!(key = "{id}"), item.clone(), None).to_string();
    assert!(refused.contains("which only Cargo tells"), "{refused}");
    let chosen = idempotent(quote!(key = "{id}", consumer = "billing.f"), item, None).to_string();
    assert!(!chosen.contains("compile_error"), "{chosen}");
}

#[test]
fn each_option_about_time_order_and_replies_reaches_the_message() {
    let output = expand(
        quote!(
            key = "{event.id}",
            occurred_at = "event.created_at",
            expired = "skip",
            sequence(entity = "{event.order}", number = "event.version"),
            fingerprint = "{event.cents}",
            replay
        ),
        quote! {
            async fn grant(tx: &mut PgTransaction<'_>, event: &Event) -> sqlx::Result<i64> {
                Ok(1)
            }
        },
    );
    let items = parse(output);
    let [Item::Fn(function)] = items.as_slice() else { panic!("one function") };
    let body = squeezed(&function.block);
    for part in [
        r".occurred_at(&event.created_at)",
        r#".part("event.order",&event.order).finish(),&event.version)"#,
        r#".optional("event.cents",&event.cents).digest())"#,
        "if_expired:::idempotent_runtime::__private::IfExpired::Skip",
        "why.settled_or_replayed(",
        "run.finish_and_store(result,",
    ] {
        assert!(body.contains(part), "{part} in {body}");
    }
}

#[test]
fn a_renamed_library_is_found() {
    let handler = quote!(
        async fn f(tx: &mut PgTransaction<'_>, id: u8) -> sqlx::Result<()> {
            Ok(())
        }
    );
    let renamed = Dependency::Renamed("messages".to_owned());
    let output = squeezed(expand_in(quote!(key = "{id}"), handler.clone(), Some("billing"), &renamed));
    assert!(output.contains("impl::messages::IntoSource<"), "{output}");
    assert!(!output.contains("idempotent_runtime"), "{output}");
    // A path that is given counts.
    let output =
        squeezed(expand_in(quote!(key = "{id}", crate = ::facade::rt), handler, Some("billing"), &Dependency::Absent));
    assert!(output.contains("impl::facade::rt::IntoSource<"), "{output}");
}

#[test]
fn beside_a_library_that_is_not_there_nothing_names_it() {
    let handler = quote!(
        async fn f(tx: &mut PgTransaction<'_>, id: u8) -> sqlx::Result<()> {
            Ok(())
        }
    );
    let output =
        expand_in(quote!(key = "{event.id}"), handler.clone(), Some("billing"), &Dependency::Absent).to_string();
    assert!(
        output.contains("write where it is re-exported, as in `crate = my_facade::idempotent_runtime`"),
        "{output}"
    );
    assert!(output.contains("there is no parameter `event`"), "{output}");
    assert!(output.ends_with(&handler.to_string()), "{output}");
}

#[test]
fn every_option_has_a_working_example() {
    let item = quote!(
        async fn f(tx: &mut PgTransaction<'_>, event: &Event) -> sqlx::Result<()> {
            Ok(())
        }
    );
    for entry in crate::options::TABLE {
        let key = if entry.text == "key" { "" } else { r#", key = "{event.id}""# };
        let needed = if entry.text == "expired" { r#", occurred_at = "event.created_at""# } else { "" };
        let example =
            entry.example.replace("{order.", "{event.").replace("\"order.", "\"event.").replace("{cmd.", "{event.");
        let arguments = format!("{example}{key}{needed}").parse().expect("tokens");
        let batch = quote!(
            async fn f(tx: &mut PgTransaction<'_>, events: Vec<Event>) -> sqlx::Result<()> {
                Ok(())
            }
        );
        let output = expand(arguments, if entry.text == "each" { batch } else { item.clone() }).to_string();
        assert!(!output.contains("compile_error"), "{}: {output}", entry.text);
    }
}
