"""Semantic roles: deep highway LSTMs."""

from elmokit.tasks.roles.task import RoleLabeller

__all__ = ["RoleLabeller"]
