// Package s3store stores recordings in an S3 bucket. The part 3 of the recording ID is the object
// PREFIX/ID/00000003.cast.
//
//   - Put replaces no object, and needs only s3:PutObject and the right to use the KMS key. Readers need s3:GetObject
//     and s3:ListBucket.
//   - The store deletes nothing. A lifecycle rule of the bucket limits the age of recordings. Object Lock keeps even an
//     administrator from changing them.
package s3store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/clusterpass/clusterpass/shared/awsclient"
	"github.com/clusterpass/clusterpass/shared/recording"
)

// Config configures a Store.
type Config struct {
	AWS    aws.Config // region, endpoint and credentials, as awsclient.Load returns them
	Bucket string     // in the same region
	Prefix string     // starts the names of all objects, without a slash at its end; may be empty
	KMSKey string     // ARN, ID or alias of the key that encrypts the objects; "" means the bucket's default
}

// Store implements recording.Store. It needs no Close.
type Store struct {
	client  *s3.Client
	cfg     Config
	prefix  string        // "" or with a slash at its end
	timeout time.Duration // for one call; awsclient.CallTimeout except in tests
}

var _ recording.Store = (*Store)(nil)

var (
	bucketRE = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	prefixRE = regexp.MustCompile(`^[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*$`)
)

const maxPrefix = 512

// New returns a Store. It makes no call.
func New(cfg Config) (*Store, error) {
	switch {
	case !bucketRE.MatchString(cfg.Bucket):
		return nil, fmt.Errorf("bucket of recordings %.64q: want the name of a bucket", cfg.Bucket)
	case cfg.Prefix != "" && (len(cfg.Prefix) > maxPrefix || !prefixRE.MatchString(cfg.Prefix)):
		return nil, fmt.Errorf("prefix of recordings %.64q: want at most %d letters, digits and /._=-, such as clusterpass",
			cfg.Prefix, maxPrefix)
	case cfg.AWS.Region == "":
		return nil, errors.New("no AWS region; set AWS_REGION")
	}
	s := &Store{cfg: cfg, timeout: awsclient.CallTimeout}
	if cfg.Prefix != "" {
		s.prefix = cfg.Prefix + "/"
	}
	s.client = s3.NewFromConfig(awsclient.Configure(cfg.AWS), func(o *s3.Options) {
		o.UsePathStyle = o.BaseEndpoint != nil // other servers than AWS have no name for each bucket
		// S3 answers this while another attempt to write the same object is running.
		o.Retryer = retry.AddWithErrorCodes(o.Retryer, "ConditionalRequestConflict")
	})
	return s, nil
}

// Put implements recording.Store. If an answer was lost, the SDK sends the part again, and S3 refuses it because the
// first attempt has succeeded. An id is random, so that no other writer can have used the name.
func (s *Store) Put(ctx context.Context, id string, number int, part []byte) error {
	if !recording.ValidID(id) || number < 0 {
		return recording.InvalidID(id)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	in := &s3.PutObjectInput{
		Bucket: &s.cfg.Bucket, Key: aws.String(s.key(id, number)), Body: bytes.NewReader(part),
		ContentType: aws.String("application/x-asciicast"), IfNoneMatch: aws.String("*"),
	}
	if s.cfg.KMSKey != "" {
		in.ServerSideEncryption, in.SSEKMSKeyId = types.ServerSideEncryptionAwsKms, &s.cfg.KMSKey
		in.BucketKeyEnabled = aws.Bool(true)
	}
	var attempts int
	_, err := s.client.PutObject(ctx, in, countAttempts(&attempts))
	if awsclient.Code(err) == "PreconditionFailed" {
		if attempts > 1 {
			return nil
		}
		return fmt.Errorf("s3:PutObject %s: %w", *in.Key, recording.ErrExists)
	}
	return s.fail("s3:PutObject", *in.Key, err)
}

// countAttempts counts the requests of a call.
func countAttempts(n *int) func(*s3.Options) {
	return s3.WithAPIOptions(func(stack *middleware.Stack) error {
		return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("CountAttempts", func(
			ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
		) (middleware.FinalizeOutput, middleware.Metadata, error) {
			*n++
			return next.HandleFinalize(ctx, in)
		}), "Retry", middleware.After)
	})
}

// Get implements recording.Store.
func (s *Store) Get(ctx context.Context, id string, number int) ([]byte, error) {
	if !recording.ValidID(id) || number < 0 {
		return nil, recording.InvalidID(id)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	key := s.key(id, number)
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.cfg.Bucket, Key: &key})
	if err != nil {
		return nil, s.fail("s3:GetObject", key, err)
	}
	defer out.Body.Close()
	data, err := io.ReadAll(io.LimitReader(out.Body, recording.MaxPart+1))
	if len(data) > recording.MaxPart {
		err = fmt.Errorf("it has more than %d bytes", recording.MaxPart)
	}
	if err != nil {
		return nil, fmt.Errorf("s3:GetObject %s: %w", key, err)
	}
	return data, nil
}

// Parts implements recording.Store.
func (s *Store) Parts(ctx context.Context, id string) ([]recording.Part, error) {
	if !recording.ValidID(id) {
		return nil, recording.InvalidID(id)
	}
	start := s.prefix + id + "/"
	var parts []recording.Part
	err := s.list(ctx, start, nil, func(page *s3.ListObjectsV2Output) {
		for _, o := range page.Contents {
			if number, ok := recording.PartNumber(strings.TrimPrefix(aws.ToString(o.Key), start)); ok {
				parts = append(parts, recording.Part{
					Number: number, Size: aws.ToInt64(o.Size), Stored: aws.ToTime(o.LastModified),
				})
			}
		}
	})
	if err == nil && len(parts) == 0 {
		err = fmt.Errorf("s3://%s/%s: %w", s.cfg.Bucket, start, recording.ErrNotFound)
	}
	return parts, err
}

// List implements recording.Store. It makes a call for each 1000 recordings.
func (s *Store) List(ctx context.Context, prefix string) ([]string, error) {
	var ids []string
	err := s.listPrefixes(ctx, prefix, "/", func(name string) {
		if id := strings.TrimSuffix(name, "/"); recording.ValidID(id) {
			ids = append(ids, id)
		}
	})
	return ids, err
}

var dayRE = regexp.MustCompile(`^\d{8}T$`)

// Days implements recording.Store. It makes a call for each 1000 days: an id has a T after the day.
func (s *Store) Days(ctx context.Context, prefix string) ([]string, error) {
	var days []string
	err := s.listPrefixes(ctx, prefix, "T", func(name string) {
		if dayRE.MatchString(name) {
			days = append(days, strings.TrimSuffix(name, "T"))
		}
	})
	return days, err
}

// listPrefixes calls add with the start of each name, up to and including the delimiter.
func (s *Store) listPrefixes(ctx context.Context, prefix, delimiter string, add func(name string)) error {
	return s.list(ctx, s.prefix+prefix, &delimiter, func(page *s3.ListObjectsV2Output) {
		for _, p := range page.CommonPrefixes {
			add(strings.TrimPrefix(aws.ToString(p.Prefix), s.prefix))
		}
	})
}

func (s *Store) list(ctx context.Context, prefix string, delimiter *string, add func(*s3.ListObjectsV2Output)) error {
	in := &s3.ListObjectsV2Input{Bucket: &s.cfg.Bucket, Prefix: &prefix, Delimiter: delimiter}
	for pages := s3.NewListObjectsV2Paginator(s.client, in); pages.HasMorePages(); {
		ctx, cancel := context.WithTimeout(ctx, s.timeout)
		page, err := pages.NextPage(ctx)
		cancel()
		if err != nil {
			return s.fail("s3:ListBucket", prefix, err)
		}
		add(page)
	}
	return nil
}

func (s *Store) fail(call, key string, err error) error {
	if err == nil {
		return nil
	}
	todo := ""
	switch code := awsclient.Code(err); {
	case code == "NoSuchKey":
		err = recording.ErrNotFound
	case code == "NoSuchBucket":
		todo = "; create the bucket, or name another one"
	case awsclient.FaultOf(err) == awsclient.Forbidden:
		todo = "; allow " + call + " on the bucket, and the use of its key"
	}
	return fmt.Errorf("%s s3://%s/%s: %w%s", call, s.cfg.Bucket, key, err, todo)
}

func (s *Store) key(id string, number int) string {
	return s.prefix + id + "/" + recording.PartName(number)
}
