// Package leak finds secrets in the output of programs. A test adds each secret to a Book when the secret is created,
// because it may later be gone from its store. The Book finds these forms:
//   - plain, and as Go prints bytes
//   - base64, also within other data, and encoded twice
//   - hexadecimal and quoted
//   - the secret numbers of a private key, because certificates contain the others
package leak

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"k8s.io/client-go/tools/clientcmd"
)

// shortest is the minimum length of a secret in bytes. Shorter strings occur by chance.
const shortest = 12

// Book is a set of secrets. The zero value is empty. It is safe for concurrent use.
type Book struct {
	mu    sync.Mutex
	forms map[string][]form // by their first bytes; the keys have the length shortest
}

type form struct{ text, from string }

// Secret adds a token or a password. For a JWT, only the signature is secret.
func (b *Book) Secret(from, secret string) {
	if parts := strings.Split(secret, "."); len(parts) == 3 && len(parts[2]) >= shortest {
		secret = parts[2]
	}
	b.note(from, spread(secret))
}

// Document adds the credentials in data, which is a kubeconfig or PEM. It returns their number.
func (b *Book) Document(from string, data []byte) int {
	n := b.keys(from, data)
	kc, err := clientcmd.Load(data)
	if err != nil {
		return n
	}
	for _, cluster := range kc.Clusters {
		if proxy, err := url.Parse(cluster.ProxyURL); err == nil && proxy.User != nil {
			n++
			password, _ := proxy.User.Password()
			b.Secret(from, password)
			b.Secret(from, strings.TrimPrefix(url.UserPassword("", password).String(), ":")) // the form in URLs
		}
	}
	for _, user := range kc.AuthInfos {
		n += b.keys(from, user.ClientKeyData)
		for _, secret := range []string{user.Token, user.Password} {
			if secret != "" {
				n++
				b.Secret(from, secret)
			}
		}
	}
	return n
}

func (b *Book) keys(from string, data []byte) (n int) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			n++
			b.note(from, keyForms(block.Bytes))
		}
	}
	return n
}

func (b *Book) note(from string, texts []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.forms == nil {
		b.forms = map[string][]form{}
	}
	for _, text := range texts {
		if len(text) < shortest {
			continue
		}
		if known := b.forms[text[:shortest]]; !slices.ContainsFunc(known, func(f form) bool { return f.text == text }) {
			b.forms[text[:shortest]] = append(known, form{text, from})
		}
	}
}

// Empty reports whether the Book is empty, so that Find proves nothing.
func (b *Book) Empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.forms) == 0
}

// Find returns the origins of the secrets in text, in order.
func (b *Book) Find(text string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := map[string]bool{}
	for i := range len(text) - shortest + 1 {
		for _, f := range b.forms[text[i:i+shortest]] {
			if strings.HasPrefix(text[i:], f.text) {
				found[f.from] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// spread returns the forms of s and of its base64. A kubeconfig contains PEM in base64, and may itself be printed in
// any form.
func spread(s string) []string {
	if len(s) < shortest {
		return nil
	}
	forms := printed(s)
	for _, encoded := range base64Forms(s) {
		forms = append(append(forms, printed(encoded)...), base64Forms(encoded)...)
	}
	return forms
}

func printed(s string) []string {
	quoted, inJSON := strconv.Quote(wholeRunes(s)), []byte{}
	if utf8.ValidString(s) {
		inJSON, _ = json.Marshal(s) // a string cannot fail
		inJSON = inJSON[1 : len(inJSON)-1]
	}
	return []string{
		s, quoted[1 : len(quoted)-1], string(inJSON), url.QueryEscape(s), fmt.Sprintf("%x", s), fmt.Sprintf("%X", s),
		fmt.Sprintf("% x", s),
		strings.Trim(fmt.Sprintf("%d", []byte(s)), "[]"), strings.Trim(fmt.Sprintf("%#v", []byte(s)), "[]byte{}"),
	}
}

// wholeRunes returns s without bytes at its ends that may form a character with their neighbours. Such bytes look
// different in quotes.
func wholeRunes(s string) string {
	for s != "" && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	for end := max(0, len(s)-utf8.UTFMax+1); end < len(s); end++ {
		if !utf8.FullRuneInString(s[end:]) {
			return s[:end]
		}
	}
	return s
}

// base64Forms returns the parts of s's base64 that do not depend on its neighbours.
func base64Forms(s string) (forms []string) {
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			text := enc.EncodeToString(append(make([]byte, before), s...))
			if (before+len(s))%3 != 0 {
				text = text[:len(text)-1] // some of its bits depend on the following bytes
			}
			forms = append(forms, text[(before*8+5)/6:]) // some of the first bits depend on the preceding bytes
		}
	}
	return forms
}
