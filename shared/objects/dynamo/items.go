package dynamo

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/clusterpass/clusterpass/shared/objects"
)

type item = map[string]types.AttributeValue

const (
	attrRevision = "revision" // of an object: revision of its last write
	attrCreated  = "created"
	attrValue    = "value"
	attrType     = "type" // only of log entries, like attrKey, attrPrevious and attrExpires
	attrKey      = "key"
	attrPrevious = "previous" // the value before an update; an entry of a deletion has it in attrValue
	attrExpires  = "expires"  // seconds since 1970
)

// shard is the number of log entries with the same pk. Resources never start with '#'.
const shard = 1024

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func num(n uint64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatUint(n, 10)}
}

func bin(b []byte) types.AttributeValue {
	if b == nil {
		b = []byte{} // nil would be sent as null
	}
	return &types.AttributeValueMemberB{Value: b}
}

func objectKey(key string) item {
	resource, name, _ := strings.Cut(key, "/")
	return item{"pk": str(resource), "sk": str(name)}
}

func revisionKey() item { return item{"pk": str("#revision"), "sk": str("#revision")} }

func logPK(rev uint64) string { return "#log/" + strconv.FormatUint(rev/shard, 10) }

func logSK(rev uint64) string { return fmt.Sprintf("%020d", rev) }

func logKey(rev uint64) item { return item{"pk": str(logPK(rev)), "sk": str(logSK(rev))} }

func encodeObject(o objects.Object) item {
	it := objectKey(o.Key)
	it[attrValue], it[attrRevision], it[attrCreated] = bin(o.Value), num(o.Revision), num(o.Created)
	return it
}

func decodeObject(it item) (o objects.Object, err error) {
	o.Key = text(it, "pk") + "/" + text(it, "sk")
	o.Value = bytesOf(it, attrValue)
	if o.Revision, err = number(it, attrRevision); err != nil {
		return o, err
	}
	o.Created, err = number(it, attrCreated)
	return o, err
}

func encodeEvent(e objects.Event, expires time.Time) item {
	it := logKey(e.Object.Revision)
	it[attrType], it[attrKey] = str(string(e.Type)), str(e.Object.Key)
	it[attrValue], it[attrRevision], it[attrCreated] = bin(e.Object.Value), num(e.Object.Revision), num(e.Object.Created)
	if e.Type == objects.Updated {
		it[attrPrevious] = bin(e.Previous)
	}
	it[attrExpires] = &types.AttributeValueMemberN{Value: strconv.FormatInt(expires.Unix(), 10)}
	return it
}

func decodeEvent(it item) (e objects.Event, err error) {
	e.Type = objects.EventType(text(it, attrType))
	e.Object.Key = text(it, attrKey)
	e.Object.Value = bytesOf(it, attrValue)
	switch e.Type {
	case objects.Updated:
		e.Previous = bytesOf(it, attrPrevious)
	case objects.Deleted:
		e.Previous = e.Object.Value
	}
	if e.Object.Revision, err = number(it, attrRevision); err != nil {
		return e, err
	}
	e.Object.Created, err = number(it, attrCreated)
	return e, err
}

func text(it item, attr string) string {
	v, _ := it[attr].(*types.AttributeValueMemberS)
	if v == nil {
		return ""
	}
	return v.Value
}

func bytesOf(it item, attr string) []byte {
	v, _ := it[attr].(*types.AttributeValueMemberB)
	if v == nil {
		return nil
	}
	return v.Value
}

func number(it item, attr string) (uint64, error) {
	v, _ := it[attr].(*types.AttributeValueMemberN)
	if v == nil {
		return 0, fmt.Errorf("%w: item %s %s has no number %s: another program has written to the table",
			objects.ErrUnavailable, text(it, "pk"), text(it, "sk"), attr)
	}
	n, err := strconv.ParseUint(v.Value, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: item %s %s: %s: %w", objects.ErrUnavailable, text(it, "pk"), text(it, "sk"), attr, err)
	}
	return n, nil
}
