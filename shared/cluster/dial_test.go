package cluster

import (
	"net/netip"
	"testing"
)

func TestDialPolicy(t *testing.T) {
	api := netip.MustParseAddrPort("127.0.0.1:9001")
	local := DialPolicy{AllowLoopback: true, Refuse: []netip.AddrPort{api}}
	tests := []struct {
		addr              string
		wantAWS, wantHere bool
	}{
		{"10.0.0.1:6443", true, true},
		{"203.0.113.1:443", true, true},
		{"[2001:db8::1]:443", true, true},
		{"127.0.0.1:6443", false, true},
		{"[::1]:6443", false, true},
		{"[::ffff:127.0.0.1]:6443", false, true},
		{"127.0.0.1:9001", false, false},
		{"[::ffff:127.0.0.1]:9001", false, false},
		{"169.254.169.254:80", false, false},
		{"169.254.170.2:80", false, false},
		{"[::ffff:169.254.169.254]:80", false, false},
		{"[64:ff9b::a9fe:a9fe]:80", false, false},
		{"[fe80::1%eth0]:80", false, false},
		{"[fd00:ec2::254]:80", false, false},
		{"100.100.100.200:80", false, false},
		{"168.63.129.16:80", false, false},
		{"0.0.0.0:80", false, false},
		{"0.1.2.3:80", false, false},
		{"[::]:80", false, false},
		{"224.0.0.1:80", false, false},
		{"255.255.255.255:80", false, false},
		{"[ff02::1]:80", false, false},
		{"[fd00:ec2::23]:80", false, false},
		{"[64:ff9b:1::a9fe:a9fe]:80", false, false},
		{"[64:ff9b::a00:1]:443", true, true},
		{"[2002:a9fe:a9fe::]:80", false, false},
		{"[::169.254.169.254]:80", false, false},
		{"192.0.0.192:80", false, false},
		{"240.0.0.1:80", false, false},
		{"[fec0::1]:80", false, false},
	}
	for _, tt := range tests {
		addr := netip.MustParseAddrPort(tt.addr)
		if got := (DialPolicy{}).Check(addr) == nil; got != tt.wantAWS {
			t.Errorf("%s may be dialled: %v", tt.addr, got)
		}
		if got := local.Check(addr) == nil; got != tt.wantHere {
			t.Errorf("%s may be dialled on one machine: %v", tt.addr, got)
		}
	}
}
