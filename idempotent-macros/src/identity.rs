//! What identifies a message: templates and fields whose roots are parameters of the handler.

use proc_macro2::{Ident, Span};
use syn::LitStr;

use crate::errors::Errors;
use crate::options::{Name, Options};
use crate::signature::{Role, Signature, plain_name};
use crate::suggest::nearest;
use crate::template::{Part, Template};

/// A template whose parts are known to belong to parameters.
#[derive(Default)]
pub(crate) struct Identity {
    pub(crate) template: Template,
    /// For each part of the template, where it starts.
    pub(crate) roots: Vec<Root>,
}

/// The parameter, or the name in a parameter's pattern, that a part starts with.
pub(crate) struct Root {
    /// Resolves as the parameter does, and is located at the template.
    pub(crate) ident: Ident,
    /// The parameter, `None` for `self`.
    pub(crate) parameter: Option<usize>,
}

/// A field whose value is taken as it is.
pub(crate) struct Field {
    pub(crate) part: Part,
    pub(crate) root: Root,
}

/// A key there must be, and one that differs from message to message.
pub(crate) fn check_key(options: &Options, key: Option<&Identity>, signature: &Signature, errors: &mut Errors) {
    if !options.mentions(Name::Key) && !options.mentions(Name::Sequence) {
        let example = example_part(signature);
        errors.at(
            Span::call_site(),
            format_args!(
                "there is no `key`: write which fields of the message identify it, as in `#[idempotent(key = \
                 \"{example}\")]`"
            ),
        );
    }
    if let Some((key, text)) = key.zip(options.text(Name::Key)) {
        check_parts("key", "all messages would have one key", key, text, signature, errors);
    }
}

/// Without a part in braces, `consequence`.
pub(crate) fn check_parts(
    option: &str,
    consequence: &str,
    identity: &Identity,
    text: &LitStr,
    signature: &Signature,
    errors: &mut Errors,
) {
    if !identity.template.parts.is_empty() {
        return;
    }
    let value = text.value();
    let advice = match Template::parse(&format!("{{{value}}}")) {
        Ok(path) if path.parts.first().is_some_and(|part| find(&part.root, signature).is_some()) => {
            format!("{{{value}}}")
        }
        _ => example_part(signature),
    };
    let shown = if value.is_empty() { format!("an empty {option}") } else { format!("`{value}`") };
    errors.on(
        text,
        format_args!("{shown} has no part in braces, so that {consequence}: write `{option} = \"{advice}\"`"),
    );
}

/// `{event.id}` with the name of a parameter that is there.
fn example_part(signature: &Signature) -> String {
    format!("{{{}.id}}", example_root(signature))
}

fn example_root(signature: &Signature) -> String {
    let name = signature
        .with_role(Role::Plain)
        .flat_map(|parameter| &parameter.bindings)
        .map(|binding| binding.inner.to_string())
        .find(|name| !name.starts_with('_'));
    name.unwrap_or_else(|| "event".to_owned())
}

impl Identity {
    pub(crate) fn read(text: &LitStr, signature: &Signature, errors: &mut Errors) -> Option<Self> {
        let (template, problems) = Template::read(&text.value());
        for problem in &problems {
            errors.on(text, problem);
        }
        let read = |part| Root::read(part, Notation::Braces, text, signature, errors);
        let roots: Vec<_> = template.parts.iter().map(read).collect();
        let roots: Option<Vec<_>> = roots.into_iter().collect();
        Some(Self { template, roots: roots.filter(|_| problems.is_empty())? })
    }

    /// The parts with their roots.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&Part, &Root)> {
        self.template.parts.iter().zip(&self.roots)
    }
}

impl Field {
    pub(crate) fn read(option: &str, text: &LitStr, signature: &Signature, errors: &mut Errors) -> Option<Self> {
        let value = text.value();
        let path = value.strip_prefix('{').and_then(|path| path.strip_suffix('}'));
        if let Some(path) = path {
            errors.on(text, format_args!("`{option}` is a field, not a template: write `{option} = \"{path}\"`"));
            return None;
        }
        let Ok(part) = Part::parse(&value) else {
            let root = example_root(signature);
            errors.on(
                text,
                format_args!(
                    "`{value}` is no field: write a parameter and its fields, as in `{option} = \"{root}.{option}\"`"
                ),
            );
            return None;
        };
        let root = Root::read(&part, Notation::Bare, text, signature, errors)?;
        Some(Self { part, root })
    }
}

/// How an option writes a field.
#[derive(Clone, Copy)]
enum Notation {
    Braces,
    Bare,
}

impl Notation {
    fn write(self, path: &str) -> String {
        match self {
            Self::Braces => format!("{{{path}}}"),
            Self::Bare => path.to_owned(),
        }
    }
}

impl Root {
    fn read(
        part: &Part,
        notation: Notation,
        text: &LitStr,
        signature: &Signature,
        errors: &mut Errors,
    ) -> Option<Self> {
        let Part { text: path, root, .. } = part;
        let written = notation.write(path);
        let example = notation.write(&format!("{}.id", example_root(signature)));
        let Some(found) = find(root, signature) else {
            let names = names(signature);
            let with_root = |name: &str| notation.write(&format!("{name}{}", part.path()));
            let message = match (nearest(root, names.iter().map(String::as_str)), names.as_slice()) {
                _ if root == "self" => {
                    format!("`{written}` means `self`, which this function does not have: write `{example}`")
                }
                (Some(name), _) => format!("there is no parameter `{root}`: write `{}`", with_root(name)),
                (None, [name]) => format!("there is no parameter `{root}`: write `{}`", with_root(name)),
                (None, []) => format!("there is no parameter `{root}`: add one with the message"),
                (None, names) => format!("there is no parameter `{root}`: write one of `{}`", names.join("`, `")),
            };
            errors.on(text, message);
            return None;
        };
        let refused = match found.role {
            Role::Plain => None,
            Role::Transaction => Some("the transaction"),
            Role::Claim => Some("the claim"),
        };
        if let Some(refused) = refused {
            errors.on(
                text,
                format_args!(
                    "`{written}` starts with {refused}, which is no part of the message: write a field of the message, \
                     like `{example}`"
                ),
            );
            return None;
        }
        let mut ident = found.ident;
        ident.set_span(text.span().resolved_at(ident.span()));
        Some(Self { ident, parameter: found.parameter })
    }
}

struct Found {
    ident: Ident,
    role: Role,
    parameter: Option<usize>,
}

/// What a name stands for in the signature.
fn find(name: &str, signature: &Signature) -> Option<Found> {
    if name == "self" {
        let ident = signature.receiver()?.into();
        return Some(Found { ident, role: Role::Plain, parameter: None });
    }
    signature.parameters.iter().enumerate().find_map(|(index, parameter)| {
        let binding = parameter.bindings.iter().find(|binding| plain_name(&binding.inner) == name)?;
        Some(Found { ident: binding.outer.clone(), role: parameter.role, parameter: Some(index) })
    })
}

/// Every name that a part may start with.
fn names(signature: &Signature) -> Vec<String> {
    let parameters = signature.with_role(Role::Plain).flat_map(|parameter| &parameter.bindings);
    let receiver = signature.receiver().map(|_| "self".to_owned());
    parameters.map(|binding| plain_name(&binding.inner)).chain(receiver).collect()
}
