package awssecrets

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"
	"github.com/aws/smithy-go/rand"

	"github.com/clusterpass/clusterpass/shared/awsclient"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// All writers share the candidate stage, so that Secrets Manager may remove a version that did not become current.
const (
	current   = "AWSCURRENT"
	previous  = "AWSPREVIOUS"
	candidate = "CLUSTERPASS_CANDIDATE"
)

// tombstone starts the ID of the version of a deleted secret. A concurrent Delete would move a stage that marks it.
const tombstone = "CLUSTERPASS_DELETED-"

// invalidRequest means that a deletion is scheduled; for RestoreSecret, that it is not.
const (
	notFound       = "ResourceNotFoundException"
	invalidRequest = "InvalidRequestException"
)

const maxRaces = 8

var errTombstone = fmt.Errorf("%w: it was deleted", secrets.ErrNotFound)

// get returns the current version. For a tombstone it returns that version and errTombstone.
func (s *Store) get(ctx context.Context, name string) (*secrets.Secret, error) {
	out, err := s.client.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{
		SecretId: s.id(name), VersionStage: aws.String(current),
	})
	if err != nil {
		return nil, asNotFound(err)
	}
	sec := &secrets.Secret{
		Meta: secrets.Meta{Name: name, Version: aws.ToString(out.VersionId), Updated: aws.ToTime(out.CreatedDate)},
	}
	if isTombstone(sec.Version) {
		return sec, errTombstone
	}
	if out.SecretString != nil {
		sec.Value = secrets.NewValue([]byte(*out.SecretString))
	} else {
		sec.Value = secrets.NewValue(out.SecretBinary)
	}
	return sec, nil
}

// asNotFound wraps err as ErrNotFound if the secret does not exist, has no current version, or is scheduled for
// deletion.
func asNotFound(err error) error {
	switch awsclient.Code(err) {
	case notFound, invalidRequest:
		return fmt.Errorf("%w: %w", secrets.ErrNotFound, err)
	}
	return err
}

func newVersion(prefix string) (string, error) {
	id, err := rand.NewUUID(rand.Reader).GetUUID()
	return prefix + id, err
}

func isTombstone(version string) bool { return strings.HasPrefix(version, tombstone) }

// swap makes a new version current in place of old; "" means none. It returns ErrConflict if another version is
// current, and ErrNotFound if the secret was deleted meanwhile.
func (s *Store) swap(ctx context.Context, name, old, version string, v secrets.Value) error {
	put := &secretsmanager.PutSecretValueInput{
		SecretId: s.id(name), ClientRequestToken: &version, VersionStages: []string{candidate},
	}
	put.SecretString, put.SecretBinary = content(v)
	if _, err := s.client.PutSecretValue(ctx, put); err != nil {
		return asNotFound(awsclient.Discreet(err))
	}
	move := &secretsmanager.UpdateSecretVersionStageInput{
		SecretId: s.id(name), VersionStage: aws.String(current), MoveToVersionId: &version,
	}
	if old != "" {
		move.RemoveFromVersionId = &old
	}
	_, moveErr := s.client.UpdateSecretVersionStage(ctx, move)
	if moveErr == nil {
		return nil
	}
	if awsclient.FaultOf(moveErr) == awsclient.Forbidden {
		return moveErr
	}
	// Either another writer was first, or the response was lost. If version is or was current, this write has succeeded.
	now, err := s.get(ctx, name)
	switch {
	case now != nil && now.Version == version:
		return nil
	case now != nil && now.Version != old && s.wasCurrent(ctx, name, version):
		return nil
	case err != nil:
		return err
	case now.Version != old:
		return fmt.Errorf("%w: want version %q, is %q", secrets.ErrConflict, old, now.Version)
	}
	return moveErr
}

func (s *Store) wasCurrent(ctx context.Context, name, version string) bool {
	is, err := s.client.DescribeSecret(ctx, &secretsmanager.DescribeSecretInput{SecretId: s.id(name)})
	return err == nil && slices.Contains(is.VersionIdsToStages[version], previous)
}

func content(v secrets.Value) (text *string, binary []byte) {
	if utf8.Valid(v.Reveal()) {
		return aws.String(string(v.Reveal())), nil
	}
	return nil, v.Reveal()
}

func currentOf(stages map[string][]string) (version string) {
	for v, st := range stages {
		if slices.Contains(st, current) {
			return v
		}
	}
	return ""
}

// labelsOf returns the tags that are valid labels. Other programs may add tags, too.
func labelsOf(tags []types.Tag) map[string]string {
	labels := map[string]string{}
	for _, t := range tags {
		k, v := aws.ToString(t.Key), aws.ToString(t.Value)
		if secrets.ValidLabels(map[string]string{k: v}) == nil {
			labels[k] = v
		}
	}
	return labels
}

func tagsOf(labels map[string]string) []types.Tag {
	tags := make([]types.Tag, 0, len(labels))
	for k, v := range labels {
		tags = append(tags, types.Tag{Key: aws.String(k), Value: aws.String(v)})
	}
	return tags
}

// fail wraps err with one of the errors of package secrets, unless it is context.Canceled.
func fail(op, name string, err error) error {
	for _, reason := range []error{
		secrets.ErrNotFound, secrets.ErrExists, secrets.ErrConflict, secrets.ErrInvalid, context.Canceled,
	} {
		if errors.Is(err, reason) {
			return fmt.Errorf("%s secret %s: %w", op, name, err)
		}
	}
	switch fault := awsclient.FaultOf(err); fault {
	case awsclient.Forbidden:
		return fmt.Errorf("%s secret %s: %w: %w", op, name, secrets.ErrForbidden, err)
	case awsclient.Throttled, awsclient.Unavailable:
		return fmt.Errorf("%s secret %s: %w", op, name, secrets.Unavailable(err, fault.RetryAfter()))
	}
	return fmt.Errorf("%s secret %s: %w: %w", op, name, secrets.ErrInvalid, err)
}
