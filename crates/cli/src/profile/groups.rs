//! Whose code a stack is in.
//!
//! The innermost function of a known owner decides. The standard library, the C library and every library
//! that is not listed here work for the function that called them.

use std::collections::{BTreeMap, HashMap};

use perfrun_contract::profile::Group;

use super::stacks::lines;

/// Beginnings of names of crates, and their groups.
const CRATES: &[(&str, Group)] = &[
    ("perfrun", Group::Perfrun),
    ("tikv_jemalloc", Group::Allocator),
    ("commonware_cryptography", Group::Crypto),
    ("commonware_runtime", Group::Runtime),
    ("commonware", Group::Stack),
    ("libp2p", Group::Stack),
    ("litep2p", Group::Stack),
    ("quinn", Group::Stack),
    ("yamux", Group::Stack),
    ("multistream_select", Group::Stack),
    ("rw_stream_sink", Group::Stack),
    ("unsigned_varint", Group::Stack),
    ("asynchronous_codec", Group::Stack),
    ("quick_protobuf", Group::Stack),
    ("prost", Group::Stack),
    ("soketto", Group::Stack),
    ("tungstenite", Group::Stack),
    ("tokio_tungstenite", Group::Stack),
    ("str0m", Group::Stack),
    ("webrtc", Group::Stack),
    ("tokio", Group::Runtime),
    ("futures", Group::Runtime),
    ("mio", Group::Runtime),
    ("aws_lc", Group::Crypto),
    ("aes", Group::Crypto),
    ("blake", Group::Crypto),
    ("chacha20", Group::Crypto),
    ("crypto", Group::Crypto),
    ("curve25519", Group::Crypto),
    ("ed25519", Group::Crypto),
    ("ghash", Group::Crypto),
    ("poly1305", Group::Crypto),
    ("ring", Group::Crypto),
    ("rustls", Group::Crypto),
    ("sha1", Group::Crypto),
    ("sha2", Group::Crypto),
    ("snow", Group::Crypto),
    ("x25519", Group::Crypto),
];

/// Beginnings of names of functions in C and assembly, and their groups.
const FUNCTIONS: &[(&str, Group)] = &[
    ("_rjem", Group::Allocator),
    ("je_", Group::Allocator),
    ("__rust_alloc", Group::Allocator),
    ("__rust_dealloc", Group::Allocator),
    ("__rust_realloc", Group::Allocator),
    ("malloc", Group::Allocator),
    ("free", Group::Allocator),
    ("aws_lc", Group::Crypto),
    ("ring_core", Group::Crypto),
    ("GFp_", Group::Crypto),
    ("chacha20", Group::Crypto),
    ("poly1305", Group::Crypto),
    ("aesni", Group::Crypto),
    ("blst", Group::Crypto),
    ("sha256", Group::Crypto),
];

/// Most characters of a name.
const NAME_MAX: usize = 72;

/// The numbers of samples in each group and, in descending order, in each function itself.
pub(super) fn count_samples(folded: &str) -> (BTreeMap<Group, u64>, Vec<(String, u64)>) {
    let mut groups = BTreeMap::new();
    let mut functions: HashMap<&str, u64> = HashMap::new();
    for (stack, samples) in lines(folded) {
        // The outermost is the name of the thread.
        let (_thread, stack) = stack.split_once(';').unwrap_or((stack, ""));
        *groups.entry(group(stack)).or_default() += samples;
        let innermost = stack.rsplit(';').next().unwrap_or_default();
        *functions.entry(innermost).or_default() += samples;
    }
    let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
    for (name, samples) in functions {
        *by_name.entry(short(name)).or_default() += samples;
    }
    let mut ranked: Vec<_> = by_name.into_iter().collect();
    ranked.sort_by_key(|(_, samples)| std::cmp::Reverse(*samples));
    (groups, ranked)
}

/// The group of a stack.
fn group(stack: &str) -> Group {
    if stack.ends_with("_[k]") {
        return Group::Kernel;
    }
    stack.rsplit(';').find_map(owner).unwrap_or(Group::Other)
}

/// The owner of a function. `None` if it works for the function that called it.
fn owner(function: &str) -> Option<Group> {
    let (name, table) = match crate_of(function) {
        // Codecs and adapters, which the node uses, too.
        Some("tokio_util") => return None,
        Some("__rustc") => (function.trim_start_matches("__rustc::"), FUNCTIONS),
        Some(name) => (name, CRATES),
        None => (function, FUNCTIONS),
    };
    let (_, group) = table.iter().find(|(beginning, _)| name.starts_with(beginning))?;
    Some(*group)
}

/// The crate in which a function of Rust is defined: that of the type of a method or, for types without a
/// crate, of its trait.
fn crate_of(function: &str) -> Option<&str> {
    let mut rest = function;
    loop {
        let mut inner = rest.trim_start_matches(['<', '&', '(', '[', '*', ' ']);
        for word in ["mut ", "dyn ", "const "] {
            inner = inner.strip_prefix(word).unwrap_or(inner);
        }
        if inner.len() == rest.len() {
            break;
        }
        rest = inner;
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    if rest[end..].starts_with("::") {
        return Some(&rest[..end]);
    }
    let (_, of_trait) = function.split_once(" as ")?;
    crate_of(of_trait)
}

/// A name without generic arguments, shortened in its middle to [`NAME_MAX`].
fn short(name: &str) -> String {
    let mut out = String::new();
    // Open brackets whose content is left out.
    let mut depth = 0_u32;
    let mut before = ' ';
    for c in name.chars() {
        match c {
            '<' if depth > 0 || before.is_alphanumeric() || matches!(before, '_' | ':') => depth += 1,
            '>' if depth > 0 && before != '-' => depth -= 1,
            _ if depth == 0 => out.push(c),
            _ => {}
        }
        before = c;
    }
    let out = out.replace("::::", "::");
    let out = out.trim_end_matches("::");
    let length = out.chars().count();
    if length <= NAME_MAX {
        return out.to_owned();
    }
    let half = NAME_MAX / 2;
    let head: String = out.chars().take(half - 1).collect();
    let tail: String = out.chars().skip(length - half).collect();
    format!("{head}…{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLDED: &str = "\
tokio-rt-worker;core::ops::call;perfrun_node::workload::send;<bytes::Bytes as core::clone::Clone>::clone 3
tokio-rt-worker;perfrun_node::workload::send;__memmove_avx_unaligned_erms 2
tokio-rt-worker;perfrun_node::workload::send;__GI___libc_write;do_syscall_64_[k];tcp_sendmsg_[k] 40
tokio-rt-worker;<yamux::Connection<T> as futures_core::Stream>::poll_next 10
tokio-rt-worker;yamux::Connection::poll;alloc::vec::Vec<u8>::push;_rjem_je_arena_malloc 4
tokio-rt-worker;<&mut libp2p_noise::Output<T> as futures_io::AsyncRead>::poll_read;snow::decrypt 20
tokio-rt-worker;tokio::runtime::task::raw::poll::<perfrun_node::Task> 6
tokio-rt-worker;perfrun_node::x;__rustc::__rust_dealloc 1
tokio-rt-worker;perfrun_node::wire::receive;<tokio_util::compat::Compat<T> as tokio::io::AsyncRead>::poll_read;memset 7
tokio-rt-worker;[unknown] 1
";

    #[test]
    fn the_innermost_function_of_a_known_owner_decides() {
        let (groups, _) = count_samples(FOLDED);
        let expected = [
            (Group::Kernel, 40),
            (Group::Stack, 10),
            (Group::Crypto, 20),
            (Group::Runtime, 6),
            (Group::Allocator, 5),
            (Group::Perfrun, 12),
            (Group::Other, 1),
        ];
        assert_eq!(groups, expected.into());
    }

    #[test]
    fn functions_are_ranked_by_samples_of_their_own() {
        let (_, functions) = count_samples(FOLDED);
        let ranked: Vec<_> = functions
            .iter()
            .map(|(name, n)| (name.as_str(), *n))
            .take(3)
            .collect();
        assert_eq!(
            ranked,
            [
                ("tcp_sendmsg_[k]", 40),
                ("snow::decrypt", 20),
                ("<yamux::Connection as futures_core::Stream>::poll_next", 10),
            ]
        );
    }

    #[test]
    fn a_method_belongs_to_the_crate_of_its_type() {
        let cases = [
            ("litep2p::transport::run", Some("litep2p")),
            ("<&mut dyn quinn::Runtime>::now", Some("quinn")),
            (
                "<[u8, 32] as commonware_codec::Write>::write",
                Some("commonware_codec"),
            ),
            (
                "<alloc::vec::Vec<perfrun_node::A> as core::ops::Drop>::drop",
                Some("alloc"),
            ),
            ("memcpy", None),
        ];
        for (function, expected) in cases {
            assert_eq!(crate_of(function), expected, "{function}");
        }
    }

    #[test]
    fn long_names_lose_arguments_and_then_their_middle() {
        assert_eq!(
            short("core::ptr::drop_in_place::<alloc::vec::Vec<fn() -> u8>>"),
            "core::ptr::drop_in_place"
        );
        let long = short(&format!("a::{}::end", "m".repeat(100)));
        assert_eq!(long.chars().count(), NAME_MAX);
        assert!(long.starts_with("a::m") && long.ends_with("m::end"), "{long}");
    }
}
