package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"path"
	"strings"
	"testing"
)

// Tags of an rpm header.
const (
	rpmBuildHost   = 1007
	rpmArch        = 1022
	rpmFileModes   = 1030
	rpmFileDigests = 1035
	rpmFileFlags   = 1037
	rpmFileUsers   = 1039
	rpmRequires    = 1049
	rpmPostinstall = 1024
	rpmPreremove   = 1025
	rpmDirIndexes  = 1116
	rpmBasenames   = 1117
	rpmDirNames    = 1118
	rpmFlagConfig  = 1<<0 | 1<<4 // a configuration file, which upgrades do not replace
)

// rpmHeader contains the values of an rpm package by their tags: strings, and numbers of 16 and 32 bits.
type rpmHeader struct {
	strings map[uint32][]string
	numbers map[uint32][]uint32
}

// readRPM reads the main header. Two blocks precede it: the lead, and the header of signatures.
func readRPM(t *testing.T, data []byte) rpmHeader {
	t.Helper()
	const lead, intro, entry = 96, 16, 16
	if !bytes.HasPrefix(data, []byte{0xed, 0xab, 0xee, 0xdb}) {
		t.Fatal("it is no rpm package")
	}
	h := rpmHeader{map[uint32][]string{}, map[uint32][]uint32{}}
	data = data[lead:]
	for isMain := range 2 {
		if !bytes.HasPrefix(data, []byte{0x8e, 0xad, 0xe8}) {
			t.Fatal("the header is damaged")
		}
		entries, size := binary.BigEndian.Uint32(data[8:]), binary.BigEndian.Uint32(data[12:])
		index, store := data[intro:intro+entry*entries], data[intro+entry*entries:][:size]
		for ; isMain == 1 && len(index) > 0; index = index[entry:] {
			tag, kind := binary.BigEndian.Uint32(index), binary.BigEndian.Uint32(index[4:])
			h.add(tag, kind, store[binary.BigEndian.Uint32(index[8:]):], binary.BigEndian.Uint32(index[12:]))
		}
		data = data[intro+entry*entries+(size+7)/8*8:]
	}
	return h
}

func (h rpmHeader) add(tag, kind uint32, values []byte, count uint32) {
	for range count {
		switch kind {
		case 3: // 16 bits
			h.numbers[tag], values = append(h.numbers[tag], uint32(binary.BigEndian.Uint16(values))), values[2:]
		case 4: // 32 bits
			h.numbers[tag], values = append(h.numbers[tag], binary.BigEndian.Uint32(values)), values[4:]
		case 6, 8, 9: // strings
			text, rest, _ := bytes.Cut(values, []byte{0})
			h.strings[tag], values = append(h.strings[tag], string(text)), rest
		}
	}
}

// checkRPM reads the headers of the packages. They contain the names, modes and digests of all files.
func (r release) checkRPM(t *testing.T) {
	for name, program := range map[string]string{"clusterpass": "clusterpass", "clusterpass-server": "clusterpass-local"} {
		for arch, rpmName := range map[string]string{"amd64": "x86_64", "arm64": "aarch64"} {
			if !r.has("linux_" + arch) {
				continue
			}
			h := readRPM(t, r.read(t, fmt.Sprintf("%s_%s_%s.rpm", name, r.version, arch)))
			if got := h.strings[rpmArch]; len(got) != 1 || got[0] != rpmName {
				t.Errorf("%s is for %q, want %s", name, got, rpmName)
			}
			if got := h.strings[rpmBuildHost]; len(got) != 1 || got[0] != "localhost" {
				t.Errorf("%s names the host %q", name, got)
			}
			digests := map[string]string{}
			for i, base := range h.strings[rpmBasenames] {
				file := path.Join(h.strings[rpmDirNames][h.numbers[rpmDirIndexes][i]], base)
				digests[strings.TrimPrefix(file, "/")] = h.strings[rpmFileDigests][i]
				if h.strings[rpmFileUsers][i] != "root" {
					t.Errorf("%s belongs to %s", file, h.strings[rpmFileUsers][i])
				}
				if base == "clusterpass.env" && (h.numbers[rpmFileModes][i]&0o777 != 0o600 ||
					h.numbers[rpmFileFlags][i]&rpmFlagConfig != rpmFlagConfig) {
					t.Errorf("%s has the mode %o and flags %b", file, h.numbers[rpmFileModes][i], h.numbers[rpmFileFlags][i])
				}
			}
			for _, want := range packageFiles[name] {
				if _, ok := digests[want]; !ok {
					t.Errorf("%s lacks %s; it has %q", name, want, digests)
				}
			}
			want := fmt.Sprintf("%x", sha256.Sum256(r.program(t, program, "linux_"+arch)))
			if got := digests["usr/bin/"+program]; got != want {
				t.Errorf("%s in %s has the digest %s, and in the archive %s", program, name, got, want)
			}
		}
	}
	h := readRPM(t, r.read(t, fmt.Sprintf("clusterpass-server_%s_amd64.rpm", r.version)))
	if requires := strings.Join(h.strings[rpmRequires], " "); !strings.Contains(requires, "clusterpass") ||
		!strings.Contains(requires, "shadow-utils") {
		t.Errorf("the server needs %q; want the command line, and useradd", requires)
	}
	if !strings.Contains(h.strings[rpmPostinstall][0], "useradd") ||
		!strings.Contains(h.strings[rpmPreremove][0], "disable --now clusterpass.service") {
		t.Errorf("the scripts are %q and %q", h.strings[rpmPostinstall], h.strings[rpmPreremove])
	}
}
