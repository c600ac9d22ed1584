package dynamo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// EnsureTable creates the table if it is missing, and waits until it is usable, for development and tests. On AWS, the
// CloudFormation template creates the table.
func (s *Store) EnsureTable(ctx context.Context) error {
	_, err := s.client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:   &s.cfg.Table,
		BillingMode: types.BillingModePayPerRequest,
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String("sk"), KeyType: types.KeyTypeRange},
		},
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String("sk"), AttributeType: types.ScalarAttributeTypeS},
		},
	})
	var exists *types.ResourceInUseException
	if errors.As(err, &exists) {
		return nil
	} else if err != nil {
		return s.fail("create", "the table "+s.cfg.Table, err)
	}
	wait := dynamodb.NewTableExistsWaiter(s.client, func(o *dynamodb.TableExistsWaiterOptions) {
		o.MinDelay = time.Second
	})
	if err := wait.Wait(ctx, &dynamodb.DescribeTableInput{TableName: &s.cfg.Table}, 2*time.Minute); err != nil {
		return fmt.Errorf("wait for the table %s: %w", s.cfg.Table, err)
	}
	_, err = s.client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName: &s.cfg.Table,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{
			AttributeName: aws.String(attrExpires), Enabled: aws.Bool(true),
		},
	})
	if err != nil {
		return s.fail("enable the expiry of log entries in", "the table "+s.cfg.Table, err)
	}
	return nil
}
