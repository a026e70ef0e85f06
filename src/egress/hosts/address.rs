//! Which addresses are public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A block of addresses: an address, and how many of its leading bits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressBlock {
    /// The first address of the block.
    first: IpAddr,
    prefix_bits: u8,
}

/// What IANA's registry of special-purpose addresses calls not globally reachable, and what follows 223.
const NOT_PUBLIC_V4: [(Ipv4Addr, u8); 17] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // Not in the registry: the platform service of Azure's virtual machines.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
    (Ipv4Addr::new(255, 255, 255, 255), 32),
];

/// The same for IPv6, within 2000::/3; nothing outside of that is public.
const NOT_PUBLIC_V6: [(Ipv6Addr, u8); 4] = [
    // Protocol assignments, among them Teredo and benchmarking. Teredo holds an IPv4 address.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    // 6to4, which holds an IPv4 address and is out of use.
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];
const GLOBAL_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// The prefix of NAT64: its last 32 bits are the IPv4 address that a gateway connects to.
const NAT64: (Ipv6Addr, u8) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

impl AddressBlock {
    /// The block of one address.
    pub fn one(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self { first: address, prefix_bits: bits_of(address) }
    }

    /// The block of `address` and `prefix_bits`, or why they do not form a block. A block of IPv4 that is mapped
    /// into IPv6 is the one of IPv4.
    pub fn new(address: IpAddr, prefix_bits: u8) -> Result<Self, &'static str> {
        if prefix_bits > bits_of(address) {
            return Err("the prefix is longer than the address");
        }
        let (first, prefix_bits) = match address.to_canonical() {
            first if bits_of(first) == bits_of(address) => (first, prefix_bits),
            first if prefix_bits >= 96 => (first, prefix_bits - 96),
            _ => (address, prefix_bits),
        };
        let block = Self { first, prefix_bits };
        let is_first = masked(first, prefix_bits) == Some(first);
        is_first.then_some(block).ok_or("bits are set behind the prefix")
    }

    /// Its first address.
    pub fn first(&self) -> IpAddr {
        self.first
    }

    /// How many leading bits its addresses share.
    pub fn prefix_bits(&self) -> u8 {
        self.prefix_bits
    }

    /// Whether it is one address.
    pub fn is_single(&self) -> bool {
        self.prefix_bits == bits_of(self.first)
    }

    /// Whether `address`, which is canonical, is in the block.
    pub fn contains(&self, address: IpAddr) -> bool {
        let same_kind = self.first.is_ipv4() == address.is_ipv4();
        same_kind && masked(address, self.prefix_bits) == Some(self.first)
    }

    /// Whether all of `other` is in this block.
    pub fn covers(&self, other: &Self) -> bool {
        self.prefix_bits <= other.prefix_bits && self.contains(other.first)
    }
}

fn bits_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Returns `address` with only its first `prefix_bits` bits.
fn masked(address: IpAddr, prefix_bits: u8) -> Option<IpAddr> {
    let behind = u32::from(bits_of(address).checked_sub(prefix_bits)?);
    Some(match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(behind).unwrap_or(0);
            Ipv4Addr::from_bits(v4.to_bits() & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(behind).unwrap_or(0);
            Ipv6Addr::from_bits(v6.to_bits() & mask).into()
        }
    })
}

/// Returns whether `address` is one of the public internet, also where it holds another address.
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            !NOT_PUBLIC_V4.iter().any(|(first, bits)| is_in(v4.into(), (*first).into(), *bits))
        }
        IpAddr::V6(v6) if is_in(v6.into(), NAT64.0.into(), NAT64.1) => {
            let [.., a, b, c, d] = v6.octets();
            is_public(Ipv4Addr::new(a, b, c, d).into())
        }
        IpAddr::V6(v6) => {
            let among = |(first, bits): &(Ipv6Addr, u8)| is_in(v6.into(), (*first).into(), *bits);
            among(&GLOBAL_V6) && !NOT_PUBLIC_V6.iter().any(among)
        }
    }
}

fn is_in(address: IpAddr, first: IpAddr, prefix_bits: u8) -> bool {
    AddressBlock { first, prefix_bits }.contains(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_of_the_internet_are_public() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.3.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "203.0.112.255",
            "203.0.114.0",
            "223.255.255.255",
            "168.63.129.15",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "2001:200::1",
            "2620:fe::fe",
            "2a00:1450::1",
        ] {
            assert!(is_public(ip(text)), "{text}");
        }
    }

    #[test]
    fn every_other_address_is_not_public() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.0",
            "100.100.100.200",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            // IPv6
            "::",
            "::1",
            "::7f00:1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "2001:db8::1",
            "3fff::1",
            "2001::1",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "4000::1",
            "5f00::1",
            "64:ff9b:1::8.8.8.8",
            // IPv4 inside IPv6
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::1",
            "2002:a00:1::1",
            "2002:808:808::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        ] {
            assert!(!is_public(ip(text)), "{text}");
        }
    }

    #[test]
    fn a_block_contains_what_shares_its_prefix() {
        for (first, bits, inside, outside) in [
            ("10.0.0.0", 8, "10.255.255.255", "11.0.0.0"),
            ("10.1.2.3", 32, "10.1.2.3", "10.1.2.2"),
            ("0.0.0.0", 0, "255.255.255.255", "::1"),
            ("fd00::", 8, "fdff::1", "fe00::"),
            ("::", 0, "ffff::", "1.2.3.4"),
            ("::ffff:10.0.0.0", 104, "10.9.9.9", "11.0.0.0"),
        ] {
            let block = AddressBlock::new(ip(first), bits).unwrap();
            assert!(block.contains(ip(inside)), "{first}/{bits} {inside}");
            assert!(!block.contains(ip(outside)), "{first}/{bits} {outside}");
        }
        assert!(AddressBlock::new(ip("10.0.0.1"), 8).is_err());
        assert!(AddressBlock::new(ip("10.0.0.0"), 33).is_err());
        assert!(AddressBlock::new(ip("fd00::1"), 64).is_err());
        assert!(AddressBlock::new(ip("fd00::"), 129).is_err());
    }
}
