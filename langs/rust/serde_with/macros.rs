//! `#[serde_as]`: turns `#[serde_as(as = "T")]` of a field into what serde itself
//! understands, `#[serde(serialize_with = "…")]`, and leaves the rest as it is.

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

#[proc_macro_attribute]
pub fn serde_as(_arguments: TokenStream, item: TokenStream) -> TokenStream {
    item.into_iter().map(translate).collect()
}

fn translate(token: TokenTree) -> TokenTree {
    let TokenTree::Group(group) = token else { return token };
    let inner = match group.delimiter() {
        Delimiter::Bracket => field_attribute(group.stream()).unwrap_or_else(|| group.stream()),
        _ => group.stream().into_iter().map(translate).collect(),
    };
    let mut translated = Group::new(group.delimiter(), inner);
    translated.set_span(group.span());
    TokenTree::Group(translated)
}

/// The stream between the brackets, when it is `serde_as(as = "T")`.
fn field_attribute(attribute: TokenStream) -> Option<TokenStream> {
    let mut tokens = attribute.into_iter();
    if tokens.next()?.to_string() != "serde_as" {
        return None;
    }
    let TokenTree::Group(arguments) = tokens.next()? else { return None };
    let kind = arguments.stream().into_iter().nth(2)?.to_string();
    let path = format!("::serde_with::As::<{}>::serialize", kind.trim_matches('"'));
    Some(format!("serde(serialize_with = {path:?})").parse().expect("an attribute of serde"))
}
