package rotate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"

	"github.com/clusterpass/clusterpass/shared/awsclient"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// Stages of a version.
const (
	current = "AWSCURRENT"
	pending = "AWSPENDING"
)

// Manager is the part of Secrets Manager's API that rotation needs. *secretsmanager.Client implements it.
type Manager interface {
	DescribeSecret(context.Context, *secretsmanager.DescribeSecretInput,
		...func(*secretsmanager.Options)) (*secretsmanager.DescribeSecretOutput, error)
	GetSecretValue(context.Context, *secretsmanager.GetSecretValueInput,
		...func(*secretsmanager.Options)) (*secretsmanager.GetSecretValueOutput, error)
	PutSecretValue(context.Context, *secretsmanager.PutSecretValueInput,
		...func(*secretsmanager.Options)) (*secretsmanager.PutSecretValueOutput, error)
	UpdateSecretVersionStage(context.Context, *secretsmanager.UpdateSecretVersionStageInput,
		...func(*secretsmanager.Options)) (*secretsmanager.UpdateSecretVersionStageOutput, error)
}

// secret is the description of a secret, without its values.
type secret struct {
	id     string // as in the event
	name   string
	stages map[string][]string // by version ID
	next   time.Time           // next rotation; zero if unknown
}

func (s *secret) currentID() string {
	for id, stages := range s.stages {
		if slices.Contains(stages, current) {
			return id
		}
	}
	return ""
}

type version struct {
	id     string
	value  secrets.Value
	binary bool
}

// errNoValue means that a version has no value yet.
var errNoValue = errors.New("no value yet")

func (r *Rotator) describe(ctx context.Context, id string) (*secret, error) {
	out, err := r.Manager.DescribeSecret(ctx, &secretsmanager.DescribeSecretInput{SecretId: &id})
	if err != nil {
		return nil, fmt.Errorf("describe the secret: %w", err)
	}
	return &secret{id, aws.ToString(out.Name), out.VersionIdsToStages, aws.ToTime(out.NextRotationDate)}, nil
}

// get reads the version with a stage or, if id is set, that version.
func (r *rotation) get(ctx context.Context, id, stage string) (*version, error) {
	in := &secretsmanager.GetSecretValueInput{SecretId: &r.secret.id, VersionStage: &stage}
	if id != "" {
		in.VersionId = &id
	}
	out, err := r.Manager.GetSecretValue(ctx, in)
	var none *types.ResourceNotFoundException
	if errors.As(err, &none) {
		return nil, fmt.Errorf("%s: %w: %w", stage, errNoValue, err)
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", stage, err)
	}
	v := &version{id: aws.ToString(out.VersionId)}
	if v.binary = out.SecretString == nil; v.binary {
		v.value = secrets.NewValue(out.SecretBinary)
	} else {
		v.value = secrets.NewValue([]byte(*out.SecretString))
	}
	return v, nil
}

// put stores v as the pending version. If another call was faster, its value stays.
func (r *rotation) put(ctx context.Context, v *version) error {
	in := &secretsmanager.PutSecretValueInput{
		SecretId: &r.secret.id, ClientRequestToken: &r.id, VersionStages: []string{pending},
	}
	if v.binary {
		in.SecretBinary = v.value.Reveal()
	} else {
		in.SecretString = aws.String(string(v.value.Reveal()))
	}
	_, err := r.Manager.PutSecretValue(ctx, in)
	var exists *types.ResourceExistsException
	if err != nil && !errors.As(err, &exists) {
		return fmt.Errorf("store the new token: %w", awsclient.Discreet(err))
	}
	return nil
}

// promote moves AWSCURRENT from version from to the pending version. It fails if from is not current.
func (r *rotation) promote(ctx context.Context, from string) error {
	_, err := r.Manager.UpdateSecretVersionStage(ctx, &secretsmanager.UpdateSecretVersionStageInput{
		SecretId: &r.secret.id, VersionStage: aws.String(current), MoveToVersionId: &r.id, RemoveFromVersionId: &from,
	})
	if err != nil {
		return fmt.Errorf("make the new token current: %w", err)
	}
	return nil
}

// clear removes AWSPENDING from the version. Secrets Manager considers a pending version that is not current a running
// rotation. A later registration may move AWSCURRENT on.
func (r *rotation) clear(ctx context.Context) error {
	if !slices.Contains(r.secret.stages[r.id], pending) {
		return nil
	}
	_, err := r.Manager.UpdateSecretVersionStage(ctx, &secretsmanager.UpdateSecretVersionStageInput{
		SecretId: &r.secret.id, VersionStage: aws.String(pending), RemoveFromVersionId: &r.id,
	})
	if err == nil {
		return nil
	}
	now, derr := r.describe(ctx, r.secret.id)
	if derr == nil && !slices.Contains(now.stages[r.id], pending) {
		return nil
	}
	return withRead(fmt.Errorf("end the rotation: %w", err), derr)
}

// storeName returns the secret's name in the gateway's secret store.
func (r *rotation) storeName() (string, error) {
	name, ok := strings.CutPrefix(r.secret.name, r.Prefix)
	if !ok {
		return "", fmt.Errorf("its name does not begin with %q: it is not one of this gateway's", r.Prefix)
	}
	return name, nil
}
