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

// Stages of versions. At most one version of a secret has a given stage.
const (
	current  = "AWSCURRENT"
	previous = "AWSPREVIOUS" // the version that was current before; Secrets Manager moves this stage itself
	// candidate is the stage of a version that has just been created. The next writer moves it to its own version. A
	// version that never became current then has no stage, so that Secrets Manager may remove it.
	candidate = "CLUSTERPASS_CANDIDATE"
)

// tombstone is the prefix of the ID of a version that marks its secret as deleted.
const tombstone = "CLUSTERPASS_DELETED-"

// Error codes of Secrets Manager.
const (
	notFound = "ResourceNotFoundException"
	// invalidRequest is the code for a secret whose state does not allow the request. This package assumes that the secret
	// is scheduled for deletion. As the error of RestoreSecret, the code means that no deletion is scheduled.
	invalidRequest = "InvalidRequestException"
)

// maxRaces limits how often Create and Delete start again because of other writers.
const maxRaces = 8

var errDeleted = fmt.Errorf("%w: it was deleted", secrets.ErrNotFound)

// get returns the current version. If that version is a tombstone, get returns it together with errDeleted.
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
		return sec, errDeleted
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

// swap makes a new version current in place of the version old. If old is "", no version may be current. swap returns
// ErrConflict if another version than old is current, and ErrNotFound if the secret was deleted meanwhile. A swap that
// succeeded may also return ErrConflict. That needs a lost response of UpdateSecretVersionStage, and two other writes
// before resultOfMove reads the versions.
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
	_, err := s.client.UpdateSecretVersionStage(ctx, move)
	if err == nil || awsclient.FaultOf(err) == awsclient.Forbidden {
		return err
	}
	return s.resultOfMove(ctx, name, old, version, err)
}

// resultOfMove returns the error of swap after UpdateSecretVersionStage returned moveErr. It returns nil if the version
// became current nevertheless: AWS may have moved the stage although the response was lost.
func (s *Store) resultOfMove(ctx context.Context, name, old, version string, moveErr error) error {
	is, err := s.client.DescribeSecret(ctx, &secretsmanager.DescribeSecretInput{SecretId: s.id(name)})
	if err != nil {
		return fmt.Errorf("%w; before, the move of %s failed: %s", asNotFound(err), current, moveErr.Error())
	}
	now, stages := currentOf(is.VersionIdsToStages), is.VersionIdsToStages[version]
	switch {
	case now == version, slices.Contains(stages, previous):
		return nil
	case is.DeletedDate != nil, now != old && isTombstone(now):
		return errDeleted
	case now != old:
		return fmt.Errorf("%w: want version %q, is %q", secrets.ErrConflict, old, now)
	}
	return moveErr
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
