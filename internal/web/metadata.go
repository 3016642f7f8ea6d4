package web

import (
	"net/netip"
	"slices"
)

// metadataPrefixes are the addresses of cloud metadata services, which return a machine's credentials. A request to one of them on
// behalf of a client would leak the credentials.
var metadataPrefixes = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"),     // link-local: 169.254.169.254 of most clouds, 169.254.170.2 of ECS
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba Cloud
	netip.MustParsePrefix("192.0.0.192/32"),     // Oracle Cloud
	netip.MustParsePrefix("fd00:ec2::/32"),      // AWS
	netip.MustParsePrefix("fd20:ce::254/128"),   // Google Cloud
	netip.MustParsePrefix("fe80::/10"),          // link-local
}

var (
	sixToFour = netip.MustParsePrefix("2002::/16")
	nat64     = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48")}
)

// metadata reports whether an address belongs to a metadata service. It also checks the IPv4 address inside a 6to4 or NAT64 address.
func metadata(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	within := func(p netip.Prefix) bool { return p.Contains(addr) }
	if slices.ContainsFunc(metadataPrefixes, within) {
		return true
	}
	b := addr.As16()
	switch {
	case sixToFour.Contains(addr):
		return metadata(netip.AddrFrom4([4]byte(b[2:6])))
	case slices.ContainsFunc(nat64, within):
		return metadata(netip.AddrFrom4([4]byte(b[12:16])))
	}
	return false
}
