package dir

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"

	"github.com/clusterpass/clusterpass/shared/objects"
)

// record is one line of the log: the CRC-32C of the JSON in eight hex digits, a space and the JSON. After the
// snapshot's revision follow its objects, sorted by key, and then the later writes.
type record struct {
	// Fields of the first record.
	Format   int    `json:"format,omitempty"`
	Snapshot uint64 `json:"snapshot,omitempty"`

	// Fields of a write or, with an empty Type, of an object in the snapshot.
	Type     objects.EventType `json:"type,omitempty"`
	Key      string            `json:"key,omitempty"`
	Value    []byte            `json:"value,omitempty"`
	Revision uint64            `json:"revision,omitempty"`
	Created  uint64            `json:"created,omitempty"` // only in the snapshot
}

const (
	format    = 1
	sumLen    = 8
	minRecord = sumLen + len(" {}\n")
)

var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// errTorn means that no intact record follows the first damaged one. The usual cause is a writer that died before it
// reported the write as successful.
var errTorn = errors.New("the end of the log is damaged")

func appendRecord(b []byte, r record) ([]byte, error) {
	j, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var sum [4]byte
	b = hex.AppendEncode(b, appendSum(sum[:0], j))
	b = append(b, ' ')
	b = append(b, j...)
	return append(b, '\n'), nil
}

func appendSum(b, j []byte) []byte {
	s := crc32.Checksum(j, castagnoli())
	return append(b, byte(s>>24), byte(s>>16), byte(s>>8), byte(s))
}

// parseRecords calls onRecord for the records before the first damaged one, and returns their size in bytes. It returns
// errTorn if all records after these are damaged, and another error if some are intact.
func parseRecords(b []byte, onRecord func(record) error) (int, error) {
	done := 0
	for done < len(b) {
		r, n, ok := parseRecord(b[done:])
		if !ok {
			return done, damage(b[done:], done)
		}
		if err := onRecord(r); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

func damage(rest []byte, at int) error {
	for {
		_, after, ok := bytes.Cut(rest, []byte("\n"))
		if !ok {
			return errTorn
		}
		if _, _, ok := parseRecord(after); ok {
			return fmt.Errorf("damaged record at byte %d, with good ones after it: restore the file from a backup", at)
		}
		rest = after
	}
}

func parseRecord(b []byte) (r record, n int, ok bool) {
	end := bytes.IndexByte(b, '\n')
	if end+1 < minRecord || b[sumLen] != ' ' {
		return record{}, 0, false
	}
	j := b[sumLen+1 : end]
	var want, sum [4]byte
	if _, err := hex.Decode(want[:], b[:sumLen]); err != nil || !bytes.Equal(want[:], appendSum(sum[:0], j)) {
		return record{}, 0, false
	}
	if err := json.Unmarshal(j, &r); err != nil {
		return record{}, 0, false
	}
	return r, end + 1, true
}
