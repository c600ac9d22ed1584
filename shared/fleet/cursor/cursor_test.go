package cursor

import (
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// golden are texts of released formats. ParseVersion and ParseToken must read them as long as clients may send them.
type golden struct {
	Versions []struct {
		Members Version `json:"members"`
		Text    string  `json:"text"`
	} `json:"versions"`
	Tokens []struct {
		Token Token  `json:"token"`
		Text  string `json:"text"`
	} `json:"tokens"`
}

func TestGolden(t *testing.T) {
	data, err := os.ReadFile("testdata/format1.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Versions) == 0 || len(g.Tokens) == 0 {
		t.Fatal("the golden file is empty")
	}
	for _, c := range g.Versions {
		if got := c.Members.String(); got != c.Text {
			t.Errorf("%v is written %s, want %s", c.Members, got, c.Text)
		}
		if got, err := ParseVersion(c.Text); err != nil || !maps.Equal(got, c.Members) {
			t.Errorf("%s is read %v, %v; want %v", c.Text, got, err, c.Members)
		}
	}
	for _, c := range g.Tokens {
		if got := c.Token.String(); got != c.Text {
			t.Errorf("%+v is written %s, want %s", c.Token, got, c.Text)
		}
		if got, err := ParseToken(c.Text); err != nil || !reflect.DeepEqual(got, c.Token) {
			t.Errorf("%s is read %+v, %v; want %+v", c.Text, got, err, c.Token)
		}
	}
}

func TestOwnAndComposite(t *testing.T) {
	for own, want := range map[string]bool{
		"1": true, "18446744073709551615": true,
		"": false, "0": false, "01": false, "18446744073709551616": false, "a": false, "-1": false, "+1": false,
	} {
		if ValidOwn(own) != want || Composite(own) {
			t.Errorf("%q: own %v, composite %v", own, ValidOwn(own), Composite(own))
		}
	}
	if v := (Version{1: "1"}).String(); !Composite(v) {
		t.Errorf("%s looks like a member's own", v)
	}
}

// TestOrder would fail if a composite did not grow with its members' versions, also where one gets another digit.
func TestOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		v := Version{}
		for range 1 + rng.IntN(6) {
			v[rng.Uint64N(1<<rng.IntN(40)+1)+1] = strconv.FormatUint(rng.Uint64N(1<<rng.IntN(63)+1)+1, 10)
		}
		larger := v.Clone()
		for id, own := range v {
			if n, _ := strconv.ParseUint(own, 10, 64); rng.IntN(2) == 0 {
				larger[id] = strconv.FormatUint(n+1+rng.Uint64N(1<<rng.IntN(62)), 10)
			}
		}
		want := -1
		if maps.Equal(v, larger) {
			want = 0
		}
		if got, err := resourceversion.CompareResourceVersion(v.String(), larger.String()); err != nil || got != want {
			t.Fatalf("%v and %v: %d, %v; want %d", v, larger, got, err, want)
		}
		larger[1<<50] = "1"
		if got, err := resourceversion.CompareResourceVersion(v.String(), larger.String()); err != nil || got != -1 {
			t.Fatalf("%v with one member more is not larger: %d, %v", v, got, err)
		}
	}
}

// TestTextOfChangingVersion fails if an event of a watch had another resourceVersion than the list of that moment, from
// which a client resumes.
func TestTextOfChangingVersion(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	v, text := Version{}, Text{}
	for range 10000 {
		id := 1 + random.Uint64N(8)
		if random.IntN(20) == 0 {
			id *= 100_000
		}
		switch own := strconv.FormatUint(random.Uint64()>>random.IntN(60)|1, 10); random.IntN(10) {
		case 0:
			delete(v, id)
		default:
			v[id] = own
		}
		if got, want := text.Of(v), v.String(); got != want {
			t.Fatalf("%v has the text %s, want %s", v, got, want)
		}
	}
}

// TestTextAllocations fails if each event of a watch of many members formatted all of them again.
func TestTextAllocations(t *testing.T) {
	v, text, n := Version{}, Text{}, uint64(0)
	for id := range uint64(500) {
		v[id+1] = "1000"
	}
	own := []string{"1001", "1002"}
	allocations := testing.AllocsPerRun(100, func() {
		n++
		v[250] = own[n%2]
		_ = text.Of(v)
	})
	if allocations > 1 {
		t.Errorf("a change allocates %v times, want 1 for the text", allocations)
	}
}

// TestWithObject would fail if a client that compares versions discarded a newer object, or if a write were refused.
func TestWithObject(t *testing.T) {
	before := Version{7: "100", 12: "98765"}
	event, later := before.WithObject("40"), before.Clone()
	later[15] = "41"
	texts := []string{"18446744073709551615", before.String(), event.String(), later.String()}
	for i, text := range texts[1:] {
		if got, err := resourceversion.CompareResourceVersion(texts[i], text); err != nil || got != -1 {
			t.Errorf("%s is not smaller than %s: %d, %v", texts[i], text, got, err)
		}
	}
	if v, err := ParseVersion(event.String()); err != nil || !maps.Equal(v, event) || len(before) != 2 {
		t.Errorf("%s is read %v, %v", event, v, err)
	}
	for _, id := range []uint64{7, 12, 15} {
		if own, ok := event.OfObject(id); own != "40" || !ok {
			t.Errorf("in cluster %d the object has version %q", id, own)
		}
	}
	if own, ok := before.OfObject(7); own != "100" || !ok {
		t.Errorf("the version of a composite without an object: %q", own)
	}
	if own, ok := before.OfObject(15); ok {
		t.Errorf("an absent member has version %q", own)
	}
}

// TestMemberToken would fail if a client got 400 for the token of one cluster. After 410 it lists again.
func TestMemberToken(t *testing.T) {
	for token, want := range map[string]bool{
		"eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTAsInN0YXJ0IjoiYVx1MDAwMCJ9": true,
		Token{Version: Version{7: "100"}, Next: 7}.String():                false,
		"": false, "abc": false, "e30": false,
	} {
		if got := IsMemberToken(token); got != want {
			t.Errorf("%q: %v", token, got)
		}
	}
}

func TestRefused(t *testing.T) {
	good := Version{7: "100", 12: "9"}.String()
	for _, s := range []string{
		"", "0", "100", "abc", good + "0", good[:len(good)-1], "2" + good[1:], strings.Replace(good, "1", "0", 1), "x" + good,
		"10412" + "0007" + "000000000000",                           // a version 0
		"10412" + "0012" + "000000000009" + "0007" + "000000000100", // not in order
		"10512" + "00007" + "000000000100",                          // wider than necessary
		"10412" + "0007" + "000000000100" + "0007" + "000000000100", // twice
		"10012" + strings.Repeat("0", 12), "19999" + strings.Repeat("1", 198),
	} {
		if v, err := ParseVersion(s); !errors.Is(err, ErrInvalid) {
			t.Errorf("ParseVersion(%q) = %v, %v", s, v, err)
		}
	}
	token := Token{Version: Version{7: "100"}, Next: 7}.String()
	for _, s := range []string{"", "x", token + "=", token[:len(token)-2],
		Token{Version: Version{7: "100"}, Next: 8}.String(),
		Token{Version: Version{7: "100"}, Next: 7, Skip: -1}.String(),
		Token{Version: Version{7: "100"}, Next: 7, Remaining: -1}.String(),
		Token{Version: Version{7: "100"}, Next: 7, PageMembers: -1}.String(), Token{Next: 7}.String()} {
		if got, err := ParseToken(s); !errors.Is(err, ErrInvalid) {
			t.Errorf("ParseToken(%q) = %+v, %v", s, got, err)
		}
	}
}

func FuzzParseVersion(f *testing.F) {
	f.Add(Version{1: "1"}.String())
	f.Add(Version{7: "100", 123456: "18446744073709551615"}.String())
	f.Fuzz(func(t *testing.T, s string) {
		v, err := ParseVersion(s)
		if err != nil {
			return
		}
		if v.String() != s || len(v) == 0 {
			t.Fatalf("%q is read %v and written %q", s, v, v)
		}
		if _, err := resourceversion.CompareResourceVersion(s, s); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzParseToken(f *testing.F) {
	f.Add(Token{Version: Version{7: "100", 8: "2"}, Next: 7, Continue: "abc", Skip: 3, PageMembers: 4}.String())
	f.Fuzz(func(t *testing.T, s string) {
		if got, err := ParseToken(s); err == nil && got.String() != s {
			t.Fatalf("%q is read %+v", s, got)
		}
	})
}
